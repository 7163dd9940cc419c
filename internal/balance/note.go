package balance

import (
	"reflect"
	"time"
)

// TopicNote is what a member says of one topic in its heartbeat. Notes are read by other
// versions too: a field is never given another meaning, and one that is unknown is
// skipped.
type TopicNote struct {
	// PerSecond is how many tasks a second RabbitMQ confirmed in the last minute, and
	// Lateness how late they were: confirm minus due, by Redis's clock.
	PerSecond float64  `json:"forwarded_per_second,omitempty"`
	Lateness  Lateness `json:"lateness,omitempty"`
	// Paused and Rate, in tasks a second over the whole fleet, are those in force; 0 is no
	// limit. Limited says that the rate held tasks back in the last 2 s.
	Paused  bool `json:"paused,omitempty"`
	Rate    int  `json:"rate,omitempty"`
	Limited bool `json:"rate_limited,omitempty"`
	// PausedUntil is when the pause ends by itself, zero if it doesn't, and PausedReason why
	// the topic is paused, as its document says.
	PausedUntil  time.Time `json:"paused_until,omitzero"`
	PausedReason string    `json:"paused_reason,omitempty"`
	// Settings in force are those that differ from the defaults, without the shard count.
	Settings map[string]string `json:"settings,omitempty"`
	// Retrying is how many tasks wait for another attempt, or are at it, after the broker
	// returned or refused them or didn't answer for them in time. A member knows of those
	// that it gave back itself since it started, up to a sixteenth of their delay too long
	// or too short; one that is cancelled or rescheduled counts until its attempt would
	// have come.
	Retrying int64 `json:"retrying,omitempty"`
	// RetryingSince is the earliest original due time among them, by Redis's clock; zero
	// if there are none. A task counts for up to 3 s after its next attempt has come, since
	// whoever makes it may be another member.
	RetryingSince time.Time `json:"retrying_since,omitzero"`
	// RetryReason is why the newest of them was not taken, and RetryReasonAt when, by the
	// member's clock; "" and zero if there are none.
	RetryReason   string    `json:"retry_reason,omitempty"`
	RetryReasonAt time.Time `json:"retry_reason_at,omitzero"`
	// Unreadable is how many due tasks were left alone in the last minute, once each: their
	// records are of a newer format than the member's version reads, or missing.
	Unreadable int64 `json:"unreadable,omitempty"`
}

// IsZero reports whether there is nothing to say, in which case the topic is left out of
// the heartbeat.
func (n TopicNote) IsZero() bool { return reflect.ValueOf(n).IsZero() }

// Plus is what two members say of the same topic; settings are those of n if it has some.
func (n TopicNote) Plus(other TopicNote) TopicNote {
	n.PerSecond += other.PerSecond
	n.Lateness = n.Lateness.Plus(other.Lateness)
	n.Limited = n.Limited || other.Limited
	if n.Settings == nil {
		n.Paused, n.Rate, n.Settings = other.Paused, other.Rate, other.Settings
		n.PausedUntil, n.PausedReason = other.PausedUntil, other.PausedReason
	}
	n.Unreadable += other.Unreadable
	n.Retrying += other.Retrying
	n.RetryingSince = earlier(n.RetryingSince, other.RetryingSince)
	if other.RetryReasonAt.After(n.RetryReasonAt) {
		n.RetryReason, n.RetryReasonAt = other.RetryReason, other.RetryReasonAt
	}
	return n
}

// earlier is the earlier of two times of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
