package balance

import "time"

// TopicNote is what a member says of one topic in its heartbeat. Notes are read by other
// versions too: a field is never given another meaning, and one that is unknown is
// skipped.
type TopicNote struct {
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
}

// IsZero reports whether there is nothing to say, in which case the topic is left out of
// the heartbeat.
func (n TopicNote) IsZero() bool { return n == TopicNote{} }

// Plus is what two members say of the same topic.
func (n TopicNote) Plus(other TopicNote) TopicNote {
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
