package scanner

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// followInterval is how often a member looks for topics that were removed from
	// Redis, and for those that it keeps until they were read once.
	followInterval = time.Second
	// restoreAfter is how long a member waits for its source to answer before it
	// starts from the documents that Redis keeps.
	restoreAfter = 3 * time.Second
	// announceInterval is how often a member sees to its entry in Consul.
	announceInterval = 10 * time.Second
	// restoreInterval is how often a member looks for topics that Redis knows and
	// nobody serves, as one that its removal brought back.
	restoreInterval = 5 * time.Second
	// registerTimeout bounds one call to Consul.
	registerTimeout = 5 * time.Second
)

// followRedis serves the topics that Redis keeps and nobody names, and stops serving
// those that were removed from it, until ctx ends.
func (s *Scanner) followRedis(ctx context.Context) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	var restored time.Time
	for ctx.Err() == nil {
		if time.Since(restored) > restoreInterval && s.mayRestore() {
			err := s.restore(ctx)
			if err == nil {
				restored = time.Now()
				s.restored.Store(true)
			}
			if s.denied.note("topics", err) && err != nil {
				s.log.WarnContext(ctx, "topics that redis keeps can't be read", "error", redisText(err))
			}
		}
		s.reap(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (s *Scanner) mayRestore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.heard || time.Since(s.started) > restoreAfter
}

// measure sets the metrics of what this member depends on.
func (s *Scanner) measure() {
	if state := s.heartbeat.State(); !state.Answered.IsZero() {
		s.metrics.SetLiveScanners(state.Live)
	}
	for _, t := range s.all() {
		t.metrics.SetInflight(t.window.inUse())
	}
	up, _ := s.redisUp()
	s.metrics.SetRedisUp(up)
	connected, blocked, _ := s.connection.State()
	s.metrics.SetRabbitMQConnected(connected)
	s.metrics.SetRabbitMQBlocked(blocked)
}

// redisText is an error of Redis's with advice.
func redisText(err error) string {
	text := err.Error()
	return text + config.Advice("redis", text)
}

// describe is what this member says of itself to the others.
func (s *Scanner) describe() balance.Member {
	host, _ := os.Hostname()
	m := balance.Member{
		Instance: s.cfg.Instance, Host: host, PID: os.Getpid(), Version: s.cfg.Version,
		Started: s.started.UTC(), Admin: s.admin.Addr(), Troubles: map[string]string{},
	}
	s.mu.Lock()
	m.Applied, m.Errors = s.applied.index, maps.Clone(s.applied.errors)
	s.mu.Unlock()
	for _, t := range s.all() {
		if trouble := t.trouble(); trouble != "" {
			m.Troubles[t.name] = trouble
		}
	}
	return m
}

// trouble says why a topic isn't served as it should be; "" if it is.
func (t *served) trouble() string {
	if ready, reason := t.publisher.Ready(); !ready {
		return reason
	}
	if why := t.refused.Load(); why != nil {
		return "not served by Redis: " + *why
	}
	if why := t.denied.text(); why != "" {
		return "not served by Redis: " + why
	}
	if text, _ := t.troubles.text(t.scanned()); text != "" {
		return text
	}
	if t.orphan.Load() {
		return "orphan: it has no document; set it or remove it with `scanner topic`"
	}
	return ""
}

// depart takes this member out of Consul, within rest.
func (s *Scanner) depart(ctx context.Context, rest time.Duration) {
	if s.cfg.Register == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	if s.unlisted.Load() == nil { // else it has said that it isn't registered
		if err := s.cfg.Register.Deregister(ctx, s.admin.Addr()); err != nil {
			s.log.WarnContext(ctx, "not deregistered from consul", "error", err)
		}
	}
	if err := s.cfg.Register.DeleteStatus(ctx, s.cfg.Instance); err != nil {
		s.log.WarnContext(ctx, "status not removed from consul", "error", err)
	}
}

// announce registers this member in Consul, trying until it is heard; and again and
// again, for an agent that came back may have lost what it knew, and one whose check
// has failed for long takes the member out.
func (s *Scanner) announce(ctx context.Context) error {
	var pause retry.Backoff
	for s.cfg.Register != nil && ctx.Err() == nil {
		if err := s.cfg.Register.Register(ctx, s.cfg.Instance, s.admin.Addr()); err != nil {
			if consul.Forbidden(err) {
				s.refused(ctx, err)
				s.awaitAnnounce(ctx)
				continue
			}
			s.log.DebugContext(ctx, "not registered in consul yet", "error", err)
			pause.Wait(ctx)
			continue
		}
		if s.unlisted.Swap(nil) != nil {
			s.log.InfoContext(ctx, "consul registers this scanner again")
		}
		pause.Reset()
		s.awaitAnnounce(ctx)
	}
	return nil
}

// refused keeps why Consul doesn't register this member, and notes it once: it works
// all the same, but whoever looks for scanners in the catalog finds none here. Consul
// away is noted by who watches the documents.
func (s *Scanner) refused(ctx context.Context, err error) {
	s.metrics.Error("register")
	why := err.Error()
	if s.unlisted.Swap(&why) == nil {
		s.log.WarnContext(ctx, "consul does not register this scanner", "error", why)
	}
}

func (s *Scanner) awaitAnnounce(ctx context.Context) {
	timer := time.NewTimer(announceInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.sourceBack:
	}
}

// observe sets up what others see of this member: health and metrics.
func (s *Scanner) observe() error {
	checks := []telemetry.Check{
		{Name: "serving", Required: true, Probe: s.atWork},
		{Name: "redis", Required: true, Probe: s.redisUp},
		{Name: "rabbitmq", Required: true, Probe: s.rabbitUp},
		{Name: "config", Required: true, Probe: s.configured},
		{Name: "topics", Required: true, Probe: s.topicsMade},
		{Name: "shards", Probe: s.shardsServed},
	}
	if s.cfg.Register != nil {
		checks = append(checks, telemetry.Check{Name: "consul", Probe: s.sourceUp})
	}
	admin, err := telemetry.NewServer(telemetry.ServerConfig{
		Listen: s.cfg.Settings.Admin.Listen, Registry: s.cfg.Registry, Checks: checks, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.admin = admin
	collector, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{Stats: s.shardStats, Metrics: s.metrics, Log: s.log})
	if err != nil {
		return err
	}
	return s.cfg.Registry.Register(collector)
}

// atWork fails once the scanner was told to stop: who waits for it to be ready
// shall not wait for this one.
func (s *Scanner) atWork() (bool, string) {
	if s.working.Err() != nil {
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
	if text := s.denied.text(); text != "" {
		return false, text
	}
	for _, t := range s.all() {
		if text := t.refused.Load(); text != nil {
			return false, "does not serve topic " + t.name + ": " + *text
		}
		if text := t.denied.text(); text != "" {
			return false, "does not serve topic " + t.name + ": " + text
		}
		if text, denied := t.troubles.text(t.scanned()); denied {
			return false, "does not serve topic " + t.name + ": " + text
		}
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

func (s *Scanner) sourceUp() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if trouble := s.applied.errors[""]; trouble != "" {
		return false, "last good settings stay in force: " + trouble
	}
	if !s.applied.heard {
		return false, "not heard yet"
	}
	if why := s.unlisted.Load(); why != nil {
		return true, "answers, but does not register this scanner: " + *why
	}
	return true, "answers"
}

// configured fails until this scanner has read documents: of its source, or
// those that Redis keeps.
func (s *Scanner) configured() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.applied.read && !s.restored.Load() {
		return false, "not read yet"
	}
	return true, fmt.Sprintf("%d topics, %d errors", len(s.topics), len(s.applied.errors))
}

// topicsMade fails while Redis has no placement of a topic whose document is in
// force: producers would be told that the topic is unknown. One whose document
// vanished or went bad since isn't made, and holds nobody back; nor does one that
// can't be forwarded, for it takes tasks and keeps them: status tells of these.
func (s *Scanner) topicsMade() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for name, v := range s.topics {
		if p, _ := v.known(); p.Epoch == 0 && !v.orphan.Load() && s.applied.errors[name] == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return false, "not in Redis yet: " + strings.Join(missing, ", ")
	}
	return true, fmt.Sprintf("%d served", len(s.topics))
}

// shardStats counts every shard of every topic served; those that can't be read are
// left out, and counted as such.
func (s *Scanner) shardStats(ctx context.Context) ([]telemetry.ShardStat, error) {
	var all []telemetry.ShardStat
	for _, t := range s.all() {
		n := t.scanned()
		stats, err := t.store.Stats(ctx, n)
		unreadable := shard.Unreadable(err)
		if err != nil && unreadable == nil {
			return nil, err
		}
		for _, u := range unreadable {
			t.metrics.ShardError(u.Shard)
		}
		for _, v := range stats {
			all = append(all, shardStat(t.name, n, v))
		}
	}
	return all, nil
}

func shardStat(name string, shards int, v shard.Stats) telemetry.ShardStat {
	stat := telemetry.ShardStat{
		Topic: name, Shard: v.Shard, Of: shards, Pending: v.Pending, Backlog: v.Backlog, Leased: v.Leased, Parked: v.Parked,
	}
	if !v.Oldest.IsZero() {
		stat.OldestDue = max(v.Now.Sub(v.Oldest), 0)
	}
	return stat
}
