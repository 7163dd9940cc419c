package scanner

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// measure sets the metrics about what this member depends on. It is called after each
// heartbeat.
func (s *Scanner) measure() {
	if state := s.heartbeat.State(); !state.Answered.IsZero() {
		s.metrics.LiveScanners.Set(float64(state.Live))
	}
	s.metrics.SetConfigDocuments(s.reloader.documents())
	for _, v := range s.reloader.all() {
		v.topic.metrics.SetInflight(v.topic.window.inUse())
		v.topic.metrics.SetBlocked(v.topic.blocked())
		v.topic.metrics.Unreadable.Set(float64(v.topic.logs.skipped.tasks()))
		v.topic.metrics.SetRetrying(v.topic.retries.count(), v.topic.retries.last().String())
	}
	up, _ := s.redisUp()
	s.metrics.RedisUp.Set(up)
	connected, blocked, _ := s.connection.State()
	s.metrics.RabbitMQConnected.Set(connected)
	s.metrics.RabbitMQBlocked.Set(blocked)
}

// shardStats counts the tasks in every shard of every served topic. It leaves out shards
// that can't be read, and counts them as errors.
func (s *Scanner) shardStats(ctx context.Context) ([]telemetry.ShardStat, error) {
	var all []telemetry.ShardStat
	for _, v := range s.reloader.all() {
		t := v.topic
		n := t.scanned()
		stats, err := t.store.Stats(ctx, n)
		unreadable := shard.Unreadable(err)
		if err != nil && unreadable == nil {
			return nil, err
		}
		for _, u := range unreadable {
			t.metrics.ShardError(u.Shard)
		}
		retried := t.retries.oldest()
		for _, v := range stats {
			stat := telemetry.ShardStat{
				Topic: t.name, Shard: v.Shard, Of: n, Pending: v.Pending, Backlog: v.Backlog, Leased: v.Leased, Parked: v.Parked,
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
	return all, nil
}

// observeCertificates registers the expiry time of each certificate file in use.
func (s *Scanner) observeCertificates() error {
	certificates, err := s.cfg.Settings.Certificates()
	for _, c := range certificates {
		err = errors.Join(err, telemetry.AddCertificate(s.cfg.Registry, c.Use, c.File, c.Expires))
	}
	return err
}
