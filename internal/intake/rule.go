package intake

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// The headers of a recurring task's rule: see task.Recurrence. The task recurs if it has
// HeaderEvery or HeaderCron. A header that says when it is due then names its first run.
const (
	// HeaderEvery is the distance of the runs: a duration such as "1h" or "1d12h", or ms.
	HeaderEvery = task.ReservedHeaderPrefix + "every"
	// HeaderCron is text: minute, hour, day, month and day of week.
	HeaderCron = task.ReservedHeaderPrefix + "cron"
	// HeaderZone is text: the zone of HeaderCron.
	HeaderZone = task.ReservedHeaderPrefix + "zone"
	// HeaderUntil is the latest time of a run, in the forms of HeaderDue.
	HeaderUntil = task.ReservedHeaderPrefix + "until"
	// HeaderRuns is how many runs there are: an integer, or text of digits.
	HeaderRuns = task.ReservedHeaderPrefix + "runs"
	// HeaderEach is a boolean, or the text "true" or "false".
	HeaderEach = task.ReservedHeaderPrefix + "each"
)

func ruleHeaders() []string {
	return []string{HeaderEvery, HeaderCron, HeaderZone, HeaderUntil, HeaderRuns, HeaderEach}
}

// ruleOf reads the rule of a recurring task from a message's headers, nil without one.
func ruleOf(headers map[string]any) (*task.Recurrence, error) {
	var r task.Recurrence
	given := ""
	for _, name := range ruleHeaders() {
		value, there := headers[name]
		if !there {
			continue
		}
		if err := readRule(&r, name, value); err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		if given == "" {
			given = name
		}
	}
	switch given {
	case "":
		return nil, nil
	case HeaderEvery, HeaderCron:
	default:
		return nil, fmt.Errorf("header %s: needs %s or %s", given, HeaderEvery, HeaderCron)
	}
	if _, err := recurrence.Of(r); err != nil {
		var rule *task.RuleError
		if errors.As(err, &rule) && rule.Field != "due" {
			return nil, fmt.Errorf("header %s%s: %w", task.ReservedHeaderPrefix, rule.Field, err)
		}
		return nil, fmt.Errorf("header %s: %w", HeaderUntil, err)
	}
	return &r, nil
}

func readRule(r *task.Recurrence, name string, value any) (err error) {
	switch name {
	case HeaderEvery:
		r.Every, err = every(value)
	case HeaderCron:
		r.Cron, err = ruleText(value)
	case HeaderZone:
		r.Zone, err = ruleText(value)
	case HeaderUntil:
		var end due
		end, err = instant(value)
		r.Until, _ = end.when.Instant()
	case HeaderRuns:
		r.Runs, err = runs(value)
	case HeaderEach:
		r.Each, err = each(value)
	}
	return err
}

func ruleText(value any) (string, error) {
	s, ok := text(value)
	if !ok || s == "" {
		return "", errors.New("must be text")
	}
	return s, nil
}

// every reads milliseconds as delay does, and in addition durations as text. Other types are
// refused.
func every(value any) (time.Duration, error) {
	if s, ok := text(value); ok {
		if _, err := decimal(s); err != nil {
			d, err := duetime.Span(s)
			if err == nil && d == 0 {
				err = errors.New("must not be 0")
			}
			return d, err
		}
	}
	if !number(value) {
		return 0, fmt.Errorf("must be milliseconds, or text; %s", duetime.SpanForm)
	}
	ms, err := millis(value)
	if err == nil && ms == 0 {
		err = errors.New("must not be 0")
	}
	// beyond the limits a Duration could overflow; these values break the rule as well
	return time.Duration(min(max(ms, -1), task.MaxAhead.Milliseconds()+1)) * time.Millisecond, err
}

// number reports whether a value is of a type from which millis reads a number.
func number(value any) bool {
	switch value.(type) {
	case float32, float64, string, []byte:
		return true
	}
	_, ok := integer(value)
	return ok
}

func runs(value any) (int, error) {
	n, ok := integer(value)
	if s, isText := text(value); isText {
		var err error
		n, err = decimal(s)
		ok = err == nil
	}
	if !ok || n < 0 || n > math.MaxUint32 {
		return 0, fmt.Errorf("must be a whole number, 0 to %d", math.MaxUint32)
	}
	return int(n), nil
}

func each(value any) (bool, error) {
	if b, ok := value.(bool); ok {
		return b, nil
	}
	switch s, _ := text(value); s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

// begin sets the due time of a recurring task without one to the first time of its rule after
// now, which is by Redis's clock. A repeat keeps the first one.
func (it *item) begin(now time.Time) {
	if it.rule == nil || !it.entry.When.IsZero() {
		return
	}
	rule, err := recurrence.Of(*it.rule)
	first, ok := rule.After(now)
	if err == nil && !ok {
		err = fmt.Errorf("header %s: must not be before the first run", HeaderUntil)
	}
	if err != nil {
		it.refusal = &refusal{refusedWhen, err}
		return
	}
	it.entry.When = task.At(first)
}
