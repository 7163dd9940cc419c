package ndjson

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// Recurrence is the rule of a recurring task as JSON, in lines and in answers. It has no
// planned time: in a request the due time is the first run.
type Recurrence struct {
	Every string `json:"every,omitzero"`
	Cron  string `json:"cron,omitzero"`
	Zone  string `json:"zone,omitzero"`
	Until string `json:"until,omitzero"`
	// Runs is how many runs are left; 0 means no limit.
	Runs int  `json:"runs,omitzero"`
	Each bool `json:"each,omitzero"`
}

// NewRecurrence returns the JSON of a rule, nil without one.
func NewRecurrence(r *task.Recurrence) *Recurrence {
	if r == nil {
		return nil
	}
	v := &Recurrence{Cron: r.Cron, Zone: r.Zone, Runs: r.Runs, Each: r.Each}
	if r.Every > 0 {
		v.Every = r.Every.String()
	}
	if !r.Until.IsZero() {
		v.Until = duetime.Text(r.Until)
	}
	return v
}

// NextRuns returns the times of the stored run of a recurring task and of the next ones, n in
// all at most. It returns none for other tasks.
func NextRuns(s *producer.Stored, n int) []string {
	if s.Recurrence == nil {
		return nil
	}
	var texts []string
	for _, at := range recurrence.Times(*s.Recurrence, s.Due, time.Now(), n) {
		texts = append(texts, duetime.Text(at))
	}
	return texts
}

// ParseRule returns the rule with Every and Until from texts under "every" and "until". Without a
// text a field stays as it is. The error is a *FieldError. The producer library checks the rest.
func ParseRule(r task.Recurrence, texts map[string]string) (*task.Recurrence, error) {
	var err error
	if text, given := texts["every"]; given {
		if r.Every, err = duetime.Span(text); err == nil && r.Every == 0 {
			err = errors.New("must not be 0")
		}
		if err != nil {
			return nil, &FieldError{Field: "every", Err: err}
		}
	}
	if text, given := texts["until"]; given {
		if r.Until, err = duetime.At(text); err == nil && r.Until.IsZero() { // it would mean no end
			err = errors.New("must be in 1971 or later")
		}
		if err != nil {
			return nil, &FieldError{Field: "until", Err: err}
		}
	}
	return &r, nil
}

// FieldError is a value that can't be understood.
type FieldError struct {
	Field string
	Err   error

	text string // in place of both, unless it is empty
}

func (e *FieldError) Error() string { return cmp.Or(e.text, fmt.Sprintf("%s: %v", e.Field, e.Err)) }

// Unwrap returns what is wrong with the value.
func (e *FieldError) Unwrap() error { return e.Err }

// recurrence returns the line's rule, nil without one.
func (o *object) recurrence() *task.Recurrence {
	inner := o.object("recurrence", "recurrence.")
	if inner == nil {
		return nil
	}
	texts := map[string]string{}
	if inner.has("every") {
		texts["every"] = inner.text("every")
	}
	if inner.has("until") {
		texts["until"] = inner.textOrNumber("until")
	}
	r, err := ParseRule(task.Recurrence{Cron: inner.text("cron"), Zone: inner.text("zone"), Runs: inner.whole("runs"),
		Each: inner.flag("each")}, texts)
	var wrong *FieldError
	if errors.As(err, &wrong) {
		inner.fail(wrong.Field, wrong.Err)
	}
	if name, found := inner.unasked(); found {
		o.fail("recurrence", unknownField(name, []string{"every", "cron", "zone", "until", "runs", "each"}))
	}
	if o.err == nil {
		o.err = inner.err
	}
	return r
}
