// Package doctor checks everything a fleet depends on, with the fleet's configuration:
// connections, permissions, Redis's settings, and the topics' exchanges and queues. It
// also checks that the fleet applies its topics' documents. Each finding says what is
// wrong and which command fixes it. Doctor itself fixes nothing. It writes nothing to Redis
// and Consul, and sends RabbitMQ an empty message that reaches no queue.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// askLimit bounds one question to a server, and all questions that need no other answer.
	askLimit = 5 * time.Second
	// moreLimit bounds the questions that need the answers to the first ones.
	moreLimit = 3500 * time.Millisecond
	// closeLimit bounds the end of a connection that answers.
	closeLimit = time.Second
)

// State is the severity of a finding.
type State string

// These are the states. Info needs no action: it is a fact, or a question that AMQP can't
// answer. NotChecked means that doctor got no answer, or has no right to ask. It says
// nothing about the fleet.
const (
	OK         State = "ok"
	Info       State = "info"
	Warn       State = "warn"
	Fail       State = "fail"
	NotChecked State = "not_checked"
)

// Finding is the outcome of one check. The JSON names are an interface.
type Finding struct {
	// Check names the check, as in "redis.eviction".
	Check string `json:"check"`
	State State  `json:"state"`
	// The text of What describes the finding in one line, without secrets. With NotChecked
	// it says why.
	What string `json:"what"`
	// Fix is a command, or an instruction, that fixes the problem; "" if nothing is
	// wrong.
	Fix string `json:"fix,omitempty"`
}

// Failed returns how many findings have the state Fail.
func Failed(findings []Finding) (n int) {
	for _, f := range findings {
		if f.State == Fail {
			n++
		}
	}
	return n
}

// FleetUnknown reports whether doctor couldn't ask the fleet. Then findings without a
// failure don't mean that the fleet is healthy.
func FleetUnknown(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool {
		return f.State == NotChecked && (f.Check == redisConnection || f.Check == fleetStatus)
	})
}

// Target is the fleet to check.
type Target struct {
	// Settings are the configuration. Its topics are checked if Consul is nil. If it is
	// nil, nothing else than Mistakes is reported.
	Settings *config.Config
	// Mistakes are the error of reading the configuration file; nil if it is good. With
	// mistakes Settings have no topics, although the file may have some.
	Mistakes error
	// Path is the path of the configuration file, for commands in the advice.
	Path string
	// Store reads the fleet's keys, with a client with these settings.
	Store *shard.Store
	// Consul is a client with these settings; nil without consul.addr.
	Consul *consul.Client

	redis redis.UniversalClient // the client of Store
}

// answers has the replies of the servers and of the fleet to the first questions.
type answers struct {
	stored  bool // Redis answers
	replica bool // and is a replica
	lacks   bool // and its user may not run all that scanners run
	// lists is true if the user of Redis may list tasks.
	lists   bool
	docs    documents
	brokers brokers
	fleet   fleetView
	unread  error // why the fleet's status isn't known
}

// Examine runs all checks, for at most askLimit, moreLimit and closeLimit. It asks the fleet
// and each server at the same time, then what needs their answers. An unreachable server
// gives one finding, and Examine skips the checks that need that server. If ctx ends,
// Examine returns the findings so far.
func Examine(ctx context.Context, p Target) []Finding {
	r := &report{}
	if p.Mistakes != nil {
		r.fail("config", p.command("check"), "%v", p.Mistakes)
	} else {
		r.ok("config", "the configuration is good")
	}
	if p.Settings == nil {
		return r.findings
	}
	servers, members, routes := &report{}, &report{}, &report{}
	found := p.ask(ctx, servers)
	defer found.brokers.close(ctx)
	more, cancel := limited(ctx, moreLimit)
	defer cancel()
	defer context.AfterFunc(more, func() { found.brokers.cut() })()
	parts := []part{{"topics' documents", members, func(ctx context.Context, r *report) func() {
		if found.stored {
			p.examineFleet(ctx, r, found)
		}
		p.examineBroken(ctx, r, found.docs, found.fleet)
		return nil
	}}}
	if found.brokers.first != nil {
		parts = append(parts, part{"exchanges and queues", routes, func(ctx context.Context, r *report) func() {
			p.examineRoutes(ctx, r, found)
			return nil
		}})
	}
	together(more, parts...)
	for _, part := range []*report{members, servers, routes} {
		r.addReport(part)
	}
	p.examineWaiting(r, found.fleet, found.brokers)
	found.operate(r.findings)
	return once(r.findings)
}

// ask puts the first questions to all servers at the same time.
func (p Target) ask(ctx context.Context, r *report) (found answers) {
	ctx, cancel := limited(ctx, askLimit)
	defer cancel()
	nodes, docs, brokers, fleet, certificates := &report{}, &report{}, &report{}, &report{}, &report{}
	found.unread, found.lists = context.DeadlineExceeded, true
	together(ctx,
		part{fleetStatus, fleet, func(ctx context.Context, _ *report) func() {
			view, err := p.readFleet(ctx)
			return func() { found.fleet, found.unread = view, err }
		}},
		part{redisConnection, nodes, func(ctx context.Context, r *report) func() {
			stored, lists := p.examineRedis(ctx, r)
			return func() { found.stored, found.lists = stored, lists }
		}},
		part{"consul.connection", docs, func(ctx context.Context, r *report) func() {
			list := p.examineTopics(ctx, r)
			return func() { found.docs = list }
		}},
		part{"rabbitmq.connection", brokers, func(ctx context.Context, r *report) func() {
			reached := p.reachRabbitMQ(ctx, r)
			return func() { found.brokers = reached }
		}},
		part{"certificates", certificates, func(ctx context.Context, r *report) func() {
			p.examineCertificates(ctx, r)
			return nil
		}})
	found.stored = found.stored || nodes.has(OK, redisConnection)
	found.replica, found.lacks = nodes.failed(redisRole), nodes.failed(redisRights)
	grant(brokers.findings, found.docs)
	for _, part := range []*report{nodes, docs, brokers, certificates} {
		r.addReport(part)
	}
	return found
}

// once removes repetitions of what couldn't be checked, and puts that behind the others.
func once(findings []Finding) (all []Finding) {
	var unchecked []Finding
	for _, f := range findings {
		switch {
		case f.State != NotChecked:
			all = append(all, f)
		case !slices.Contains(unchecked, f):
			unchecked = append(unchecked, f)
		}
	}
	return append(all, unchecked...)
}

// Connect checks only whether each server answers, with the user, password and TLS of the
// settings, and takes new tasks.
func Connect(ctx context.Context, p Target) []Finding {
	ctx, cancel := limited(ctx, askLimit)
	defer cancel()
	nodes, docs, brokers := &report{}, &report{}, &report{}
	parts := []part{
		{redisConnection, nodes, func(ctx context.Context, r *report) func() { p.reachWritable(ctx, r); return nil }},
		{"rabbitmq.connection", brokers, func(ctx context.Context, r *report) func() {
			p.reachRabbitMQ(ctx, r).close(ctx) // it has answered, and nothing else was asked
			return nil
		}},
	}
	if p.Consul != nil {
		parts = append(parts, part{"consul.connection", docs,
			func(ctx context.Context, r *report) func() { p.reachConsul(ctx, r); return nil }})
	}
	together(ctx, parts...)
	findings := slices.Concat(nodes.findings, docs.findings, brokers.findings)
	grant(findings, documents{})
	for i, f := range findings { // check asks whether there is an answer
		if f.State == NotChecked {
			findings[i].State, findings[i].Fix = Fail, "start the server, or look at the way to it"
		}
	}
	return findings
}

// command returns the scanner command with this configuration's path.
func (p Target) command(verb string) string {
	if p.Path == "" {
		return "scanner " + verb
	}
	return "scanner " + verb + " --config " + p.Path
}
