package scanner

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// limitedFor is for how long a note reports that the rate held tasks back. At a rate of
// one a second, workers ask no more often than that.
const limitedFor = 2 * time.Second

// topicNote returns what this scanner reports about the topic in its heartbeat.
func (t *topic) topicNote() (n balance.TopicNote) {
	t.retries.addToNote(&n)
	t.minute.AddTo(&n)
	t.logs.skipped.addToNote(&n)
	s := t.inForce.Settings()
	n.Rate, n.Settings = s.Rate, t.inForce.Differs()
	if n.Paused = t.inForce.Paused(); n.Paused {
		n.PausedUntil, n.PausedReason = t.inForce.Pause()
	}
	if at := t.limited.Load(); at != nil {
		n.Limited = s.Rate > 0 && time.Since(*at) < limitedFor
	}
	return n
}

// measure sets the metrics that have a state. It is called at each scrape.
func (s *Scanner) measure() {
	if state := s.heartbeat.State(); !state.Answered.IsZero() {
		s.metrics.LiveScanners.Set(float64(state.Live))
	}
	s.metrics.documents.SetHash(s.documents.Hash())
	for _, v := range s.all() {
		v.topic.metrics.setInflight(v.topic.window.InUse())
		v.topic.metrics.setBlocked(v.topic.blocked())
		v.topic.metrics.Unreadable.Set(float64(v.topic.logs.skipped.tasks()))
		v.topic.metrics.setRetrying(v.topic.retries.count(), v.topic.retries.last().String())
	}
	s.metrics.RedisUp.Set(s.redisUp().OK)
	connected, blocked, _ := s.outbound.state()
	s.metrics.RabbitMQConnected.Set(connected)
	s.metrics.RabbitMQBlocked.Set(blocked)
}

// statsWithin is how long Redis may take to count the tasks of all shards. It is less than the
// collector's patience, so that a node that hangs hides the topics on that node alone.
const statsWithin = 1500 * time.Millisecond

// shardStats counts the tasks in every shard of every served topic. It leaves out shards
// that can't be read, and counts them as errors. If whole topics can't be read, it returns the
// error of one with the counts of the others.
func (s *Scanner) shardStats(ctx context.Context) (all []telemetry.ShardStat, failed error) {
	ctx, cancel := context.WithTimeout(ctx, statsWithin)
	defer cancel()
	topics := s.all()
	counts := make([]shard.Count, len(topics))
	for i, v := range topics {
		counts[i] = shard.Count{Topic: v.topic.store, Shards: v.topic.scanned()}
	}
	for i, c := range s.store.Stats(ctx, counts) {
		t := topics[i].topic
		unreadable := shard.Unreadable(c.Err)
		if c.Err != nil && unreadable == nil {
			failed = c.Err
			continue
		}
		for _, u := range unreadable {
			t.metrics.shardError(u.Shard)
		}
		retried := t.retries.oldest()
		for _, v := range c.Stats {
			stat := telemetry.ShardStat{
				Topic: t.name, Shard: v.Shard, Of: c.Shards, Pending: v.Pending, Backlog: v.Backlog, Leased: v.Leased,
				Parked: v.Parked,
			}
			if !v.Oldest.IsZero() {
				stat.OldestDue = max(v.Now.Sub(v.Oldest), 0)
			}
			if due, there := retried[v.Shard]; there && v.Pending > v.Parked {
				stat.OldestDue = max(stat.OldestDue, v.Now.Sub(due))
			}
			all = append(all, stat)
		}
	}
	return all, failed
}
