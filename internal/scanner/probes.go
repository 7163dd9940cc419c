package scanner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
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
func (s *Scanner) atWork() (bool, string) {
	if s.stopping.Load() {
		return false, "stopping"
	}
	return true, "at work"
}

func (s *Scanner) redisUp() (bool, string) {
	state, why := s.heartbeat.State(), ""
	if state.Failure != "" {
		why = ": " + state.Failure
	}
	if state.Answered.IsZero() {
		return false, "not reached yet" + why
	}
	if since := time.Since(state.Answered); since > balance.Silence {
		return false, fmt.Sprintf("no answer for %s%s", since.Round(time.Second), why)
	}
	if text := s.reloader.refusals.denied(); text != "" {
		return false, text
	}
	for _, v := range s.reloader.all() {
		text := v.topic.health.unserved()
		if shards, denied := v.topic.refusedShards(); text == "" && denied {
			text = shards
		}
		if text != "" {
			return false, "does not serve topic " + v.topic.name + ": " + text
		}
	}
	if unsafe := s.durability.warnings(); len(unsafe) > 0 { // all other scanners have the same problem
		return true, "answers, but may lose what it acknowledged: " + strings.Join(unsafe, "; ")
	}
	return true, "answers"
}

func (s *Scanner) rabbitUp() (bool, string) {
	connected, blocked, reason := s.connection.State()
	switch {
	case !connected:
		return false, "not connected: " + reason
	case blocked:
		return false, "blocks publishers: " + reason
	}
	return true, "connected"
}

func (s *Scanner) consulUp() (bool, string) {
	_, errs, heard := s.reloader.state()
	if trouble := errs[""]; trouble != "" {
		return false, "last good settings stay in force: " + trouble
	}
	if !heard {
		return false, "not heard yet"
	}
	if why := s.registration.refusal.Load(); why != nil {
		return true, "answers, but does not register this scanner: " + *why
	}
	return true, "answers"
}

// ownSource fails while documents of another source are in force instead of this
// scanner's own. The scanner still delivers, so the check isn't required.
func (s *Scanner) ownSource() (bool, string) {
	if why := s.sources.why(); why != "" {
		return false, why
	}
	return true, cmp.Or(s.sources.own, "not compared")
}

// configured fails until this scanner has read documents, from its source or from Redis.
func (r *reloader) configured() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read && !r.restored {
		return false, "not read yet"
	}
	return true, fmt.Sprintf("%d topics, %d errors", len(r.topics), len(r.errors))
}

// topicsMade fails while Redis has no placement of a topic whose document is in force:
// producers would get the error that the topic is unknown. A topic whose source isn't
// known fails it too. Topics whose document has vanished or become bad aren't made, and
// don't count. A topic that can't be forwarded doesn't count either: it still takes and
// keeps tasks, and status reports it.
func (r *reloader) topicsMade() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := slices.Clone(r.pending)
	for name, v := range r.topics {
		if p, _ := v.topic.resharder.Known(); p.Epoch == 0 && !v.orphan.Load() && r.errors[name] == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return false, "not in Redis yet: " + strings.Join(missing, ", ")
	}
	return true, fmt.Sprintf("%d served", len(r.topics))
}

// shardsServed fails while Redis refuses to serve some shards, and names them. Other
// scanners have the same problem with these, so the check isn't required.
func (s *Scanner) shardsServed() (bool, string) {
	return s.noTopic("served", func(t *topic) string {
		text, _ := t.refusedShards()
		return text
	})
}

// routesOpen fails while RabbitMQ refuses the routes of topics, and names them. An
// exchange may be missing or declared differently. RabbitMQ refuses that to every
// scanner, and the tasks wait, so the check isn't required.
func (s *Scanner) routesOpen() (bool, string) {
	return s.noTopic("none refused", func(t *topic) string {
		block, _ := t.publisher.Blocked()
		return block.Reason
	})
}

// noTopic returns true and good if no topic has a problem, else false and the problems.
func (s *Scanner) noTopic(good string, problem func(*topic) string) (bool, string) {
	var all []string
	for _, v := range s.reloader.all() {
		if text := problem(v.topic); text != "" {
			all = append(all, "topic "+v.topic.name+": "+text)
		}
	}
	if len(all) == 0 {
		return true, good
	}
	slices.Sort(all)
	return false, strings.Join(all, "; ")
}

// trouble returns why a topic isn't served as it should be; "" if it is.
func (v *served) trouble() string {
	if ready, reason := v.topic.publisher.Ready(); !ready {
		return reason
	}
	if block, _ := v.topic.publisher.Blocked(); block.Reason != "" {
		return block.Reason
	}
	if why := v.topic.health.unserved(); why != "" {
		return "not served by Redis: " + why
	}
	if text, _ := v.topic.refusedShards(); text != "" {
		return text
	}
	if why := v.topic.intakeTrouble(); why != "" {
		return "takes no messages from its intake: " + why
	}
	if v.orphan.Load() {
		return "orphan: it has no document; set it or remove it with `scanner topic`"
	}
	return ""
}
