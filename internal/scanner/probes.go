package scanner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// observe sets up the health checks and metrics of this member.
func (s *Scanner) observe() error {
	checks := []telemetry.Check{
		{Name: "serving", Required: true, Probe: s.atWork},
		{Name: "redis", Required: true, Probe: s.redisUp},
		{Name: "rabbitmq", Required: true, Probe: s.rabbitUp},
		{Name: "config", Required: true, Probe: s.reloader.configured},
		{Name: "topics", Required: true, Probe: s.reloader.topicsMade},
		{Name: "memory", Probe: s.roomInRedis},
		{Name: "data", Probe: s.dataKept},
		{Name: "shards", Probe: s.shardsServed},
		{Name: "routes", Probe: s.routesOpen},
		{Name: "source", Probe: s.ownSource},
	}
	if s.registration != nil {
		checks = append(checks, telemetry.Check{Name: "consul", Probe: s.consulUp})
	}
	admin, err := telemetry.NewServer(telemetry.ServerConfig{
		Listen: s.cfg.Settings.Admin.Listen, Instance: s.cfg.Instance, Registry: s.cfg.Registry, Checks: checks, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.admin = admin
	collector, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{Stats: s.shardStats, Metrics: s.metrics,
		Log: s.log})
	if err != nil {
		return err
	}
	if err := s.cfg.Registry.Register(collector); err != nil {
		return err
	}
	return s.observeCertificates()
}

// atWork fails once the scanner is stopping, so that nobody waits for it to become ready.
func (s *Scanner) atWork() telemetry.Result {
	r := telemetry.Probed("at work")
	if s.stopping.Load() {
		stopping := problem.New(problem.Stopping, "", "stopping")
		r = telemetry.Result{Detail: stopping.Text, Problems: []problem.Problem{stopping}}
	}
	return r
}

// redisUp fails while Redis doesn't answer this scanner, or denies it a right. That Redis
// may lose tasks doesn't fail it: all other scanners have the same problem.
func (s *Scanner) redisUp() telemetry.Result {
	found := slices.Concat(s.unanswered(), slices.DeleteFunc(s.redisProblems(), func(p problem.Problem) bool {
		return p.Kind == problem.RedisFull
	}))
	for _, v := range s.reloader.all() {
		found = append(found, v.topic.redisProblems()...)
		for _, p := range v.topic.shardProblems() {
			if p.Kind == problem.RedisRefuses {
				found = append(found, p)
			}
		}
	}
	return telemetry.Probed("answers", found...)
}

// roomInRedis fails while Redis refuses new tasks. Stored ones are delivered, and all
// scanners have the same problem, so the check isn't required.
func (s *Scanner) roomInRedis() telemetry.Result {
	return telemetry.Probed("redis takes new tasks", s.fullProblems()...)
}

func (s *Scanner) rabbitUp() telemetry.Result {
	return telemetry.Probed("connected", s.rabbitProblems()...)
}

// consulUp fails while Consul doesn't answer. The last good settings stay in force, so the
// check isn't required.
func (s *Scanner) consulUp() telemetry.Result {
	found := slices.DeleteFunc(s.sourceProblems(), func(p problem.Problem) bool {
		return p.Kind != problem.ConsulAway && p.Kind != problem.ConfigurationRefused && p.Kind != problem.ConsulRefuses
	})
	if _, _, heard := s.reloader.state(); !heard {
		found = append(found, problem.New(problem.ConsulAway, "", "not heard yet"))
	}
	return telemetry.Probed("answers", found...)
}

// ownSource fails while documents of another source are in force instead of this
// scanner's own. The scanner still delivers, so the check isn't required.
func (s *Scanner) ownSource() telemetry.Result {
	return telemetry.Probed(cmp.Or(s.sources.own, "not compared"), s.foreignProblems()...)
}

// configured fails until this scanner has read documents.
func (r *reloader) configured() telemetry.Result {
	found := r.problems()
	r.mu.Lock()
	defer r.mu.Unlock()
	return telemetry.Probed(fmt.Sprintf("%d topics, %d errors", len(r.topics), len(r.errors)), found...)
}

// topicsMade fails while Redis has no placement of a topic whose document is in force.
func (r *reloader) topicsMade() telemetry.Result {
	found := r.unmade()
	return telemetry.Probed(fmt.Sprintf("%d served", len(r.all())), found...)
}

// shardsServed fails while Redis refuses to serve some shards, and names them. Other
// scanners have the same problem with these, so the check isn't required.
func (s *Scanner) shardsServed() telemetry.Result {
	return telemetry.Probed("served", s.ofTopics((*topic).shardProblems)...)
}

// routesOpen fails while RabbitMQ refuses the routes of topics, and names them. An
// exchange may be missing or declared differently. RabbitMQ refuses that to every
// scanner, and the tasks wait, so the check isn't required.
func (s *Scanner) routesOpen() telemetry.Result {
	return telemetry.Probed("none refused", s.ofTopics((*topic).routeProblems)...)
}

// ofTopics returns what find finds in all topics, by topic.
func (s *Scanner) ofTopics(find func(*topic) []problem.Problem) (found []problem.Problem) {
	for _, v := range s.reloader.all() {
		found = append(found, find(v.topic)...)
	}
	slices.SortFunc(found, func(a, b problem.Problem) int { return strings.Compare(a.Topic, b.Topic) })
	return found
}
