package admin

import (
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TaskLine is a task of a listing in JSON. The times are RFC 3339, and Unix milliseconds
// under the name with _ms.
type TaskLine struct {
	Topic string     `json:"topic"`
	ID    string     `json:"id"`
	State task.State `json:"state"`
	// Group is absent if the task is in none.
	Group string `json:"group,omitempty"`
	// Due and Scheduled are absent if the record can't be read.
	Due         string `json:"due,omitempty"`
	DueMs       int64  `json:"due_ms,omitempty"`
	Scheduled   string `json:"scheduled,omitempty"`
	ScheduledMs int64  `json:"scheduled_ms,omitempty"`
	// NextAttempt is the time of the next attempt, or the end of the lease; absent if parked.
	NextAttempt   string `json:"next_attempt,omitempty"`
	NextAttemptMs int64  `json:"next_attempt_ms,omitempty"`
	// Attempts is how often the broker returned or refused the task.
	Attempts    int    `json:"attempts"`
	Redelivered bool   `json:"redelivered"`
	Reason      string `json:"reason,omitempty"`
	// Recurrence is the rule of a recurring task, and Series the ID of a run's recurring task.
	// Both are absent unless Tasks.Details is set.
	Recurrence *RecurrenceLine `json:"recurrence,omitempty"`
	Series     string          `json:"series,omitempty"`
	// AMQP is the message of a task that came through the topic's intake. It is absent unless
	// Tasks.Details is set.
	AMQP *amqpmsg.View `json:"amqp,omitempty"`
}

// NewTaskLine returns the line of a task at the present time.
func NewTaskLine(l Listed, now time.Time) TaskLine {
	return TaskLine{
		Topic: l.Topic, ID: l.ID, State: l.State, Group: l.Group,
		Due: duetime.Text(l.Due), DueMs: duetime.Millis(l.Due),
		Scheduled: duetime.Text(l.Scheduled), ScheduledMs: duetime.Millis(l.Scheduled),
		NextAttempt: duetime.Text(l.Next), NextAttemptMs: duetime.Millis(l.Next),
		Attempts: max(l.Attempt-1, 0), Redelivered: l.Redelivered, Reason: l.Reason,
		Recurrence: newRecurrenceLine(l, now), Series: l.Series, AMQP: amqpmsg.NewView(l.AMQP),
	}
}

// ParkedLine is a parked task in JSON. The times are as in TaskLine.
type ParkedLine struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	// Group is absent if the task is in none.
	Group string `json:"group,omitempty"`
	Due   string `json:"due,omitempty"`
	DueMs int64  `json:"due_ms"`
	// FirstDue is absent if the record can't be read. Due is the time of the last retry.
	FirstDue   string `json:"first_due,omitempty"`
	FirstDueMs int64  `json:"first_due_ms,omitempty"`
	// ParkedAt is absent if the record doesn't hold it.
	ParkedAt   string `json:"parked_at,omitempty"`
	ParkedAtMs int64  `json:"parked_at_ms,omitempty"`
	Attempts   int    `json:"attempts"`
	Bytes      int    `json:"payload_bytes"`
	Reason     string `json:"reason"`
	// Series is the ID of a run's recurring task.
	Series string `json:"series,omitempty"`
	// AMQP is the message of a task that came through the topic's intake.
	AMQP *amqpmsg.View `json:"amqp,omitempty"`
}

// NewParkedLine returns the line of a parked task.
func NewParkedLine(r shard.Record) ParkedLine {
	return ParkedLine{
		Topic: r.Topic, ID: r.ID, Group: r.Group, Attempts: max(r.Attempt-1, 0), Bytes: r.PayloadBytes, Reason: r.Reason,
		Due: duetime.Text(r.Due), DueMs: duetime.Millis(r.Due),
		FirstDue: duetime.Text(r.FirstDue), FirstDueMs: duetime.Millis(r.FirstDue),
		ParkedAt: duetime.Text(r.ReasonAt), ParkedAtMs: duetime.Millis(r.ReasonAt),
		Series: r.Series, AMQP: amqpmsg.NewView(r.AMQP),
	}
}
