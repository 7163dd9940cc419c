package scanner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/selfcheck"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// observe sets up the health checks and metrics of this member.
func (s *Scanner) observe() error {
	checks := []telemetry.Check{
		{Name: "serving", Required: true, Probe: s.atWork},
		{Name: "redis", Required: true, Probe: s.redisUp},
		{Name: "rabbitmq", Required: true, Probe: s.rabbitUp},
		{Name: "config", Required: true, Probe: s.configured},
		{Name: "topics", Required: true, Probe: s.topicsMade},
		{Name: "memory", Probe: s.roomInRedis},
		{Name: "data", Probe: s.identity.Holds},
		{Name: "clock", Probe: s.clock.Agrees},
		{Name: "shards", Probe: s.shardsServed},
		{Name: "routes", Probe: s.routesOpen},
		{Name: "source", Probe: s.ownSource},
	}
	if s.cfg.Register != nil {
		checks = append(checks, telemetry.Check{Name: "consul", Probe: s.consulUp})
	}
	files, certificates := connect.Certificates(s.cfg.Settings)
	for _, c := range files {
		certificates = errors.Join(certificates, telemetry.AddCertificate(s.cfg.Registry, c.Use, c.File, c.Expires))
	}
	s.certificates = &selfcheck.Certificates{Files: files, Log: s.log}
	if len(files) > 0 {
		checks = append(checks, telemetry.Check{Name: "certificates", Probe: s.certificates.Last})
	}
	admin, err := telemetry.NewServer(telemetry.ServerConfig{
		Listen: s.cfg.Settings.Admin.Listen, Instance: s.cfg.Instance, Registry: s.cfg.Registry, Checks: checks, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.admin = admin
	collector, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{Stats: s.shardStats,
		Errors: s.metrics.errors, Series: s.metrics.series, Topics: s.cfg.Settings.Admin.TopicSeries,
		Together: s.metrics.set.Together, Log: s.log})
	if err != nil {
		return err
	}
	return errors.Join(s.cfg.Registry.Register(collector), certificates)
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
	found := slices.Concat(s.unanswered(), s.ofDocuments(problem.RedisRefuses), s.durability.Unsafe())
	for _, v := range s.all() {
		found = append(found, v.topic.redisProblems()...)
		for _, p := range v.topic.shardProblems() {
			if p.Kind == problem.RedisRefuses {
				found = append(found, p)
			}
		}
	}
	return telemetry.Probed("answers", found...)
}

// roomInRedis fails while Redis refuses new tasks, or soon will. Stored ones are delivered, and all
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
	found := append(s.ofDocuments(problem.ConsulAway, problem.ConfigurationRefused, problem.ConsulRefuses),
		s.identity.Refused()...)
	if !s.documents.State().Heard {
		found = append(found, problem.New(problem.ConsulAway, "", "not heard yet"))
	}
	return telemetry.Probed("answers", found...)
}

// ownSource fails while documents of another source are in force instead of this
// scanner's own. The scanner still delivers, so the check isn't required.
func (s *Scanner) ownSource() telemetry.Result {
	return telemetry.Probed(cmp.Or(s.cfg.SourceName, "not compared"), s.ofDocuments(problem.OtherSource)...)
}

// configured fails until this scanner has read documents.
func (s *Scanner) configured() telemetry.Result {
	return telemetry.Probed(fmt.Sprintf("%d topics, %d errors", len(s.all()), len(s.documents.State().Errors)),
		s.ofDocuments(problem.NotConfigured)...)
}

// topicsMade fails while Redis has no placement of a topic whose document is in force.
func (s *Scanner) topicsMade() telemetry.Result {
	return telemetry.Probed(fmt.Sprintf("%d served", len(s.all())), s.documents.Unmade()...)
}

// ofDocuments returns the problems with documents that are of some kinds.
func (s *Scanner) ofDocuments(kinds ...problem.Kind) []problem.Problem {
	other := func(p problem.Problem) bool { return !slices.Contains(kinds, p.Kind) }
	return slices.DeleteFunc(s.documents.Problems(), other)
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
	for _, v := range s.all() {
		found = append(found, find(v.topic)...)
	}
	slices.SortFunc(found, func(a, b problem.Problem) int { return strings.Compare(a.Topic, b.Topic) })
	return found
}
