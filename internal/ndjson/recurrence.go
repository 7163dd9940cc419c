package ndjson

import (
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
			return nil, &FieldError{"every", err}
		}
	}
	if text, given := texts["until"]; given {
		if r.Until, err = duetime.At(text); err == nil && r.Until.IsZero() { // it would mean no end
			err = errors.New("must be in 1971 or later")
		}
		if err != nil {
			return nil, &FieldError{"until", err}
		}
	}
	return &r, nil
}

// FieldError is a value that can't be understood.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %v", e.Field, e.Err) }

// ruleLine is the field recurrence of a line.
type ruleLine struct {
	Every given[string]       `json:"every"`
	Cron  given[string]       `json:"cron"`
	Zone  given[string]       `json:"zone"`
	Until given[textOrNumber] `json:"until"`
	Runs  given[int]          `json:"runs"`
	Each  given[bool]         `json:"each"`
}

// recurrence returns the line's rule, nil without one.
func (f *taskLine) recurrence() (*task.Recurrence, error) {
	if !f.Recurrence.ok {
		return nil, nil
	}
	v, texts := f.Recurrence.value, map[string]string{}
	if v.Every.ok {
		texts["every"] = v.Every.value
	}
	if v.Until.ok {
		texts["until"] = string(v.Until.value)
	}
	r := task.Recurrence{Cron: v.Cron.value, Zone: v.Zone.value, Runs: v.Runs.value, Each: v.Each.value}
	return ParseRule(r, texts)
}
