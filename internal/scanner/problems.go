package scanner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
)

// problems returns what is wrong with this scanner and its topics, for the heartbeat. It
// isn't nil. That Redis doesn't answer is left out: a heartbeat that arrives is an answer.
func (s *Scanner) problems() []problem.Problem {
	found := []problem.Problem{}
	if s.stopping.Load() {
		found = append(found, problem.New(problem.Stopping, "", "stopping"))
	}
	found = slices.Concat(found, s.fullProblems(), s.durability.Unsafe(), s.identity.Problems(), s.clock.Problems(),
		s.documents.Problems(), s.documents.Unmade(), s.identity.Refused(), s.certificates.Problems())
	topics := s.all()
	if len(topics) == 0 { // else each topic says so
		found = append(found, s.rabbitProblems()...)
	}
	for _, v := range topics {
		found = append(found, v.problems()...)
	}
	return append(found, s.documents.Orphans()...)
}

// unanswered returns that Redis doesn't answer this scanner's heartbeats.
func (s *Scanner) unanswered() []problem.Problem {
	state, why := s.heartbeat.State(), ""
	if state.Failure != "" {
		why = ": " + state.Failure
	}
	switch since := time.Since(state.Answered); {
	case state.Answered.IsZero():
		return []problem.Problem{problem.New(kindOfRedis(state.Cause), "", "not reached yet"+why)}
	case since > balance.Silence:
		return []problem.Problem{problem.New(kindOfRedis(state.Cause), "",
			fmt.Sprintf("no answer for %s%s", since.Round(time.Second), why))}
	}
	return nil
}

// measured returns what is wrong with this scanner and its topics, for the metrics. It has
// that Redis doesn't answer, too. A topic is named only if it is served, so that the source
// can't add series without end.
func (s *Scanner) measured() []problem.Problem {
	found := slices.Concat(s.unanswered(), s.problems())
	for i := range found {
		if s.served(found[i].Topic) == nil {
			found[i].Topic = ""
		}
	}
	return found
}

// fullProblems returns that Redis refuses new tasks because it is at maxmemory, or that it
// soon will. It still takes what delivers stored ones.
func (s *Scanner) fullProblems() []problem.Problem {
	if !s.heartbeat.State().Full {
		return s.durability.NearlyFull()
	}
	return []problem.Problem{problem.New(problem.RedisFull, "",
		"redis is at maxmemory: it refuses new tasks, and stored ones are delivered")}
}

// kindOfRedis returns the kind of problem that an error of Redis is.
func kindOfRedis(err error) problem.Kind {
	if shard.Denied(err) {
		return problem.RedisRefuses
	}
	return problem.RedisUnreachable
}

// rabbitProblems returns what is wrong with the connection to RabbitMQ.
func (s *Scanner) rabbitProblems() []problem.Problem {
	connected, blocked, reason := s.outbound.state()
	switch {
	case !connected:
		return []problem.Problem{problem.New(problem.RabbitMQUnreachable, "", "not connected: "+reason)}
	case blocked:
		return []problem.Problem{problem.New(problem.RabbitMQBlocked, "", "blocks publishers: "+reason)}
	}
	return nil
}

// problems returns what keeps the topic from being served as it should be, the most
// important first.
func (v *served) problems() []problem.Problem {
	t := v.topic
	found := slices.Concat(t.forwarding(), t.redisProblems(), t.shardProblems())
	if why := t.intakeTrouble(); why != "" {
		found = append(found, problem.New(problem.IntakeStopped, t.name, "takes no messages from its intake: "+why))
	}
	return found
}

// forwarding returns what keeps the topic's messages from RabbitMQ.
func (t *topic) forwarding() []problem.Problem {
	connected, blocked, _ := t.outbound.State()
	ready, reason := t.publisher.Ready()
	route := t.routeProblems()
	switch {
	case !ready && !connected:
		return []problem.Problem{problem.New(problem.RabbitMQUnreachable, t.name, reason)}
	case !ready && blocked:
		return []problem.Problem{problem.New(problem.RabbitMQBlocked, t.name, reason)}
	case len(route) > 0:
		return route
	case !ready: // it starts, stops, or opens its channel again
		return []problem.Problem{problem.New(problem.TopicUnserved, t.name, reason)}
	}
	return nil
}

// routeProblems returns why RabbitMQ refuses the topic's route.
func (t *topic) routeProblems() []problem.Problem {
	block, _ := t.publisher.Blocked()
	if block.Reason == "" {
		return nil
	}
	kind := problem.RouteRefused
	if block.Kind == forward.NotFound {
		kind = problem.ExchangeMissing
	}
	p := problem.New(kind, t.name, block.Reason)
	p.Facts = map[string]string{"reason": block.Kind}
	return []problem.Problem{p}
}

// redisProblems returns why Redis doesn't serve the topic as a whole.
func (t *topic) redisProblems() []problem.Problem {
	kind, why := problem.RedisRefuses, t.health.refusals.denied()
	if outage := t.outage(); outage != nil {
		kind, why = outage.kind, outage.why
	}
	if why == "" {
		return nil
	}
	return []problem.Problem{problem.New(kind, t.name, "not served by Redis: "+why)}
}

// outage returns why Redis doesn't serve a worker; nil if it does. A sleeping topic has no
// worker, and the scanner's heartbeats tell.
func (t *topic) outage() *outage {
	if beat := t.beat(); t.asleep() && beat.Failure != "" {
		return &outage{kindOfRedis(beat.Cause), beat.Failure}
	}
	return t.health.outage.Load()
}

// shardProblems returns the shards that Redis refuses to serve, as one problem. It is
// RedisRefuses if a right is missing: other scanners may have it.
func (t *topic) shardProblems() []problem.Problem {
	refused := t.refusedShards()
	if len(refused.numbers) == 0 {
		return nil
	}
	kind := problem.ShardUnserved
	if refused.denied {
		kind = problem.RedisRefuses
	}
	names := shard.ShardNames(refused.numbers)
	p := problem.New(kind, t.name, names+" not served by Redis: "+refused.why)
	p.Facts = map[string]string{"shards": strings.TrimPrefix(strings.TrimPrefix(names, "shards "), "shard ")}
	if len(refused.numbers) == 1 {
		p.Shard = p.Facts["shards"]
	}
	return []problem.Problem{p}
}
