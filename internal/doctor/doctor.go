// Package doctor looks at all a fleet depends on, as an operator would who has
// its configuration: connections, rights, how Redis is set, what is at the
// broker, and whether the fleet works by what its topics' documents say. Each
// finding says what is wrong and which command mends it. Nothing is mended here,
// and nothing is written but scratch keys that are removed again.
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

// askLimit bounds one question to a server.
const askLimit = 5 * time.Second

// State is how a finding is to be taken.
type State string

// The states. Info is what a person should know, or what can't be found out.
const (
	OK   State = "ok"
	Info State = "info"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is the outcome of one check. The JSON names are an interface.
type Finding struct {
	// Check is what was looked at, as in "redis.eviction".
	Check string `json:"check"`
	State State  `json:"state"`
	// What was found, on one line, without secrets.
	What string `json:"what"`
	// Mend is the command that mends it; empty where nothing is wrong.
	Mend string `json:"mend,omitempty"`
}

// Patient is the fleet that is looked at.
type Patient struct {
	// Settings are the configuration; its topics are used without Consul.
	Settings *config.Config
	// Broken says that the configuration has mistakes, which are a finding already. Settings
	// have no topics then, and say nothing of which there should be.
	Broken bool
	// Path is the configuration file's, for the commands that are named.
	Path string
	// Redis is a client made of the settings, Store the keys in it.
	Redis redis.UniversalClient
	Store *shard.Store
	// Consul is a client made of the settings; nil without consul.addr.
	Consul *consul.Client
}

// report collects findings in the order they are made.
type report struct{ findings []Finding }

func (r *report) ok(check, format string, args ...any)   { r.add(check, OK, "", format, args...) }
func (r *report) info(check, format string, args ...any) { r.add(check, Info, "", format, args...) }

func (r *report) warn(check, mend, format string, args ...any) {
	r.add(check, Warn, mend, format, args...)
}

func (r *report) fail(check, mend, format string, args ...any) {
	r.add(check, Fail, mend, format, args...)
}

func (r *report) add(check string, s State, mend, format string, args ...any) {
	r.findings = append(r.findings, Finding{check, s, fmt.Sprintf(format, args...), mend})
}

// Examine makes all checks. What can't be reached is one finding, and what lies
// behind it is left out.
func Examine(ctx context.Context, p Patient) []Finding {
	r := &report{}
	stored := p.examineRedis(ctx, r)
	docs := p.examineTopics(ctx, r)
	brokers := p.reachRabbitMQ(ctx, r)
	defer brokers.close()
	fleet := fleetView{}
	if stored {
		fleet = p.examineFleet(ctx, r, docs, brokers)
	}
	p.examineBroken(ctx, r, docs, fleet.live())
	if brokers.first != nil {
		p.examinePlaces(ctx, r, brokers.first, docs.good, fleet)
	}
	p.examineWaiting(r, fleet, brokers)
	return r.findings
}

// Connect looks whether each server answers, with the user, the password and the TLS of
// the settings, and no further.
func Connect(ctx context.Context, p Patient) []Finding {
	r := &report{}
	p.reachRedis(ctx, r)
	if p.Consul != nil {
		p.reachConsul(ctx, r)
	}
	p.reachRabbitMQ(ctx, r).close() // it has answered, which is all that was asked
	return r.findings
}

// command is how to call the scanner's verb with this configuration.
func (p Patient) command(verb string) string {
	if p.Path == "" {
		return "scanner " + verb
	}
	return "scanner " + verb + " --config " + p.Path
}
