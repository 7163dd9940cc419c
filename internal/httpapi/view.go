package httpapi

import (
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// View is a stored task as JSON, without its name. The command producer prints the same
// fields. Times are RFC 3339, and Unix milliseconds under the name with _ms.
type View struct {
	State           task.State `json:"state"`
	Due             string     `json:"due"`
	DueMillis       int64      `json:"due_ms"`
	FirstDue        string     `json:"first_due"`
	FirstDueMillis  int64      `json:"first_due_ms"`
	Scheduled       string     `json:"scheduled"`
	ScheduledMillis int64      `json:"scheduled_ms"`
	// NextAttempt is the end of a lease or of a backoff. It is absent if the next attempt
	// is at the due time, and for parked tasks.
	NextAttempt string `json:"next_attempt,omitempty"`
	// Attempts is how often the broker returned or refused the task.
	Attempts      int               `json:"attempts"`
	Redelivered   bool              `json:"redelivered"`
	Group         string            `json:"group,omitempty"`
	ContentType   string            `json:"content_type"`
	Headers       map[string]string `json:"headers"`
	RoutingKey    string            `json:"routing_key,omitempty"`
	Priority      uint8             `json:"priority,omitempty"`
	Expiration    string            `json:"expiration,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty"`
	// Recurrence is the rule of a recurring task. Planned is when the stored run is due by the
	// rule, if it was moved. NextRuns are that run and two more at most.
	Recurrence    *ndjson.Recurrence `json:"recurrence,omitempty"`
	Planned       string             `json:"planned,omitempty"`
	PlannedMillis int64              `json:"planned_ms,omitempty"`
	NextRuns      []string           `json:"next_runs,omitempty"`
	// Series is the recurring task's ID, in a run that is a task of its own.
	Series string `json:"series,omitempty"`
	// AMQP is the message of a task that came through the topic's intake.
	AMQP *amqpmsg.View `json:"amqp,omitempty"`
	// Payload is present if the payload is valid UTF-8, else PayloadBase64.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	// Reason is why the task was parked or last released.
	Reason string `json:"reason,omitempty"`
}

// runsShown is how many runs of a recurring task a view has, the stored one included.
const runsShown = 3

// NewView returns the view of a stored task.
func NewView(s producer.Stored) View {
	v := View{
		State:           s.State,
		Due:             duetime.Text(s.Due),
		DueMillis:       s.Due.UnixMilli(),
		FirstDue:        duetime.Text(s.FirstDue),
		FirstDueMillis:  s.FirstDue.UnixMilli(),
		Scheduled:       duetime.Text(s.Scheduled),
		ScheduledMillis: s.Scheduled.UnixMilli(),
		Attempts:        max(s.Attempt-1, 0),
		Redelivered:     s.Redelivered,
		Group:           s.Group,
		ContentType:     s.ContentType,
		Headers:         s.Headers,
		RoutingKey:      s.Options.RoutingKey,
		Priority:        s.Options.Priority,
		CorrelationID:   s.Options.CorrelationID,
		ReplyTo:         s.Options.ReplyTo,
		Recurrence:      ndjson.NewRecurrence(s.Recurrence),
		NextRuns:        ndjson.NextRuns(&s, runsShown),
		Series:          s.Series,
		AMQP:            amqpmsg.NewView(s.AMQP),
		Reason:          s.Reason,
	}
	if s.Options.Expiration > 0 {
		v.Expiration = s.Options.Expiration.String()
	}
	if s.Recurrence != nil {
		v.Planned, v.PlannedMillis = duetime.Text(s.Recurrence.Planned), duetime.Millis(s.Recurrence.Planned)
	}
	if v.Headers == nil {
		v.Headers = map[string]string{}
	}
	if s.State != task.Parked && !s.NextAttempt.IsZero() && s.NextAttempt.Sub(s.Due).Abs() >= time.Millisecond {
		v.NextAttempt = duetime.Text(s.NextAttempt)
	}
	if utf8.Valid(s.Payload) {
		text := string(s.Payload)
		v.Payload = &text
	} else {
		v.PayloadBase64 = s.Payload
	}
	return v
}
