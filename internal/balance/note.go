package balance

import (
	"maps"
	"reflect"
	"time"
)

// TopicNote is a member's report about one topic, as its heartbeat carries it. Other
// versions read notes too: a field never changes its meaning, and unknown fields are
// skipped.
type TopicNote struct {
	// PerSecond is how many tasks a second RabbitMQ confirmed in the last minute.
	// Lateness counts them by how late they were: confirm minus due, by Redis's clock.
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
	// broker returned or refused them, or didn't answer in time. A member counts only
	// tasks that it released itself since it started. It counts each up to a sixteenth of
	// its delay too long or too short. A task that is cancelled or rescheduled counts
	// until its attempt would have come.
	Retrying int64 `json:"retrying,omitempty"`
	// RetryingSince is the earliest original due time among them, by Redis's clock; zero
	// if there are none. A task counts for up to 3 s after the time of its next attempt,
	// because another member may make that attempt.
	RetryingSince time.Time `json:"retrying_since,omitzero"`
	// RetryReason is why the newest of them wasn't accepted. RetryReasonAt is when, by
	// the member's clock. They are "" and zero if there are none.
	RetryReason   string    `json:"retry_reason,omitempty"`
	RetryReasonAt time.Time `json:"retry_reason_at,omitzero"`
	// Unreadable is how many due tasks claims skipped in the last minute, each counted
	// once. Their records are missing, or of a newer format than the member's version
	// reads.
	Unreadable int64 `json:"unreadable,omitempty"`
	// UnreadableSince says for each shard when the member first met such a task, by the
	// member's clock. If there are many shards, it names only some.
	UnreadableSince map[int]time.Time `json:"unreadable_since,omitempty"`
}

// IsZero reports whether there is nothing to report. The heartbeat then leaves the topic
// out.
func (n TopicNote) IsZero() bool { return reflect.ValueOf(n).IsZero() }

// Plus merges what two members report about the same topic. Settings, rate and pause are
// n's if n has settings, and other's if not.
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
