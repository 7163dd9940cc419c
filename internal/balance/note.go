package balance

import (
	"maps"
	"reflect"
	"time"
)

// TopicNote is one scanner's report about one topic, a part of its heartbeat. Scanners of
// other versions read it too: a field never changes its meaning, and a reader skips
// unknown fields.
type TopicNote struct {
	// PerSecond is the mean number of tasks per second that RabbitMQ confirmed in the
	// last minute. Lateness counts these tasks by how late they were: confirm minus due,
	// by Redis's clock.
	PerSecond float64  `json:"forwarded_per_second,omitempty"`
	Lateness  Lateness `json:"lateness,omitempty"`
	// Paused and Rate are the settings in force. Rate is in tasks a second over the whole
	// fleet; 0 means no limit. Limited reports that the rate held tasks back in the last
	// 2 s.
	Paused  bool `json:"paused,omitempty"`
	Rate    int  `json:"rate,omitempty"`
	Limited bool `json:"rate_limited,omitempty"`
	// PausedUntil is when the pause ends by itself, zero if it doesn't. PausedReason is
	// why the topic is paused, as its document says.
	PausedUntil  time.Time `json:"paused_until,omitzero"`
	PausedReason string    `json:"paused_reason,omitempty"`
	// Settings are the settings in force that differ from the defaults, without the shard
	// count.
	Settings map[string]string `json:"settings,omitempty"`
	// Retrying is how many tasks wait for another attempt or are in flight for one. The
	// broker returned or refused them, or didn't answer in time. A member counts the
	// retried tasks that it has in flight. It also counts each task that it released
	// itself, until the time of the next attempt. It rounds that time by at most a
	// sixteenth of the delay. It doesn't notice if such a task is cancelled or
	// rescheduled.
	Retrying int64 `json:"retrying,omitempty"`
	// RetryingSince is the earliest original due time among them, by Redis's clock; zero
	// if there are none. A task counts for up to 3 s after the time of its next attempt,
	// because another member may make that attempt.
	RetryingSince time.Time `json:"retrying_since,omitzero"`
	// RetryReason is why the broker didn't accept the newest of them. RetryReasonAt is
	// when that was, by the member's clock. They are "" and zero if there are none.
	RetryReason   string    `json:"retry_reason,omitempty"`
	RetryReasonAt time.Time `json:"retry_reason_at,omitzero"`
	// Unreadable is how many due tasks the member's claims skipped in the last minute,
	// each counted once. A claim skips a task whose record is missing, or has a newer
	// format than the member's version reads.
	Unreadable int64 `json:"unreadable,omitempty"`
	// UnreadableSince says for each shard when the member first met such a task, by the
	// member's clock. If there are many shards, it names only some.
	UnreadableSince map[int]time.Time `json:"unreadable_since,omitempty"`
}

// IsZero reports whether there is nothing to report. The heartbeat then leaves the topic
// out.
func (n TopicNote) IsZero() bool { return reflect.ValueOf(n).IsZero() }

// Plus merges what two members report about the same topic. It takes settings, rate and
// pause from n if n has settings, otherwise from other.
func (n TopicNote) Plus(other TopicNote) TopicNote {
	n.PerSecond += other.PerSecond
	n.Lateness = n.Lateness.Plus(other.Lateness)
	n.Limited = n.Limited || other.Limited
	if n.Settings == nil {
		n.Paused, n.Rate, n.Settings = other.Paused, other.Rate, other.Settings
		n.PausedUntil, n.PausedReason = other.PausedUntil, other.PausedReason
	}
	n.Unreadable += other.Unreadable
	n.UnreadableSince = earliest(n.UnreadableSince, other.UnreadableSince)
	n.Retrying += other.Retrying
	n.RetryingSince = earlier(n.RetryingSince, other.RetryingSince)
	if other.RetryReasonAt.After(n.RetryReasonAt) {
		n.RetryReason, n.RetryReasonAt = other.RetryReason, other.RetryReasonAt
	}
	return n
}

// earlier returns the earlier of two times; zero means that there is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// earliest returns the earlier time of each shard.
func earliest(a, b map[int]time.Time) map[int]time.Time {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	for at, t := range b {
		all[at] = earlier(all[at], t)
	}
	return all
}
