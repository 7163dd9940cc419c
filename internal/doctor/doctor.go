// Package doctor checks everything a fleet depends on, with the fleet's configuration:
// connections, permissions, Redis's settings, and the topics' exchanges and queues. It
// also checks that the fleet applies its topics' documents. Each finding says what is
// wrong and which command fixes it. Doctor itself fixes nothing. It writes only scratch
// keys in Redis and Consul, which it removes again, and sends RabbitMQ an empty message
// that reaches no queue.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/shard"
)

// askLimit bounds one request to a server.
const askLimit = 5 * time.Second

// State is the severity of a finding.
type State string

// These are the states. Info needs no action: it is a fact, or a question that doctor
// can't answer.
const (
	OK   State = "ok"
	Info State = "info"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is the outcome of one check. The JSON names are an interface.
type Finding struct {
	// Check names the check, as in "redis.eviction".
	Check string `json:"check"`
	State State  `json:"state"`
	// The text of What describes the finding in one line, without secrets.
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
	// Redis is a client with these settings, and Store reads the fleet's keys with it.
	Redis redis.UniversalClient
	Store *shard.Store
	// Consul is a client with these settings; nil without consul.addr.
	Consul *consul.Client
}

// report collects findings in order.
type report struct{ findings []Finding }

func (r *report) ok(check, format string, args ...any)   { r.add(check, OK, "", format, args...) }
func (r *report) info(check, format string, args ...any) { r.add(check, Info, "", format, args...) }

func (r *report) warn(check, fix, format string, args ...any) {
	r.add(check, Warn, fix, format, args...)
}

func (r *report) fail(check, fix, format string, args ...any) {
	r.add(check, Fail, fix, format, args...)
}

func (r *report) add(check string, s State, fix, format string, args ...any) {
	r.findings = append(r.findings, Finding{check, s, fmt.Sprintf(format, args...), fix})
}

// Examine runs all checks. An unreachable server gives one finding, and Examine skips the
// checks that need that server.
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
	stored := p.examineRedis(ctx, r)
	docs := p.examineTopics(ctx, r)
	brokers := p.reachRabbitMQ(ctx, r)
	defer brokers.close()
	fleet := fleetView{}
	if stored {
		fleet = p.examineFleet(ctx, r, docs, brokers)
	}
	p.examineBroken(ctx, r, docs, fleet)
	if brokers.first != nil {
		p.examineRoutes(ctx, r, brokers.first, docs.good, fleet)
	}
	p.examineWaiting(r, fleet, brokers)
	return r.findings
}

// Connect checks only whether each server answers, with the user, password and TLS of the
// settings.
func Connect(ctx context.Context, p Target) []Finding {
	r := &report{}
	p.reachRedis(ctx, r)
	if p.Consul != nil {
		p.reachConsul(ctx, r)
	}
	p.reachRabbitMQ(ctx, r).close() // it has answered, and nothing else was asked
	return r.findings
}

// command returns the scanner command with this configuration's path.
func (p Target) command(verb string) string {
	if p.Path == "" {
		return "scanner " + verb
	}
	return "scanner " + verb + " --config " + p.Path
}
