package producer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// misusedTimes are due times that are forgotten or in the wrong unit, and their errors.
func misusedTimes() map[string]struct {
	when When
	want string
} {
	seconds := int64(1796119200)
	return map[string]struct {
		when When
		want string
	}{
		"a forgotten When": {When{}, "due: must be given; Now() is due now; got no time"},
		"a zero time":      {At(time.Time{}), "due: must be given; Now() is due now; got the zero time.Time"},
		"seconds as milliseconds": {At(time.UnixMilli(seconds)),
			"due: looks like Unix seconds that were taken for milliseconds; want time.Unix(1796119200, 0); got " +
				"1970-01-21T18:55:19Z"},
		"the first of such seconds": {At(time.UnixMilli(1_000_000_000)), "due: looks like Unix seconds"},
		"the last of such seconds":  {At(time.UnixMilli(4_100_000_000)), "due: looks like Unix seconds"},
	}
}

// TestAForgottenTimeIsRefused: nothing is stored, because it would be due now.
func TestAForgottenTimeIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	_, err := c.Schedule(f.ctx(), request("there", In(time.Hour)))
	f.ok(err)
	for name, row := range misusedTimes() {
		t.Run(name, func(t *testing.T) {
			r := request("a", row.when)
			_, scheduled := c.Schedule(f.ctx(), r)
			_, moved := c.Reschedule(f.ctx(), orders, "there", row.when)
			for call, err := range map[string]error{
				"Check": r.Check(task.DefaultMaxPayload, time.Now()), "Schedule": scheduled,
				"ScheduleMany": c.ScheduleMany(f.ctx(), []Request{r})[0].Err, "Reschedule": moved,
			} {
				var rule *task.RuleError
				if !errors.As(err, &rule) || rule.Field != "due" || !strings.HasPrefix(err.Error(), row.want) {
					t.Errorf("%s: got %v, want %s", call, err, row.want)
				}
			}
		})
	}
	f.inPlace(map[string]bool{"there": true})
	s, err := c.Get(f.ctx(), orders, "there")
	f.ok(err)
	if left := s.Due.UnixMilli() - f.now(); left < time.Hour.Milliseconds()/2 {
		t.Errorf("the task that was there is due in %d ms", left)
	}
}

// TestThePastIsNow: a time long ago, or near the refused seconds, is valid.
func TestThePastIsNow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	for name, when := range map[string]When{
		"now":              Now(),
		"negative":         In(-time.Hour),
		"last year":        At(time.Now().AddDate(-1, 0, 0)),
		"the epoch":        At(time.UnixMilli(0)),
		"before seconds":   At(time.UnixMilli(999_999_999)),
		"after seconds":    At(time.UnixMilli(4_100_000_001)),
		"before the epoch": At(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		before := f.now()
		due, err := c.Schedule(f.ctx(), request(name, when))
		f.ok(err)
		if due.UnixMilli() < before || due.UnixMilli() > f.now() {
			t.Errorf("%s: due %v", name, due)
		}
	}
}
