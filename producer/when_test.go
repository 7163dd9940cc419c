package producer

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// misusedTimes are due times that are forgotten or in the wrong unit, and their errors.
func misusedTimes() map[string]struct {
	when When
	want string
} {
	const seconds = 1796119200
	const far = "due: must be at most 100 years ahead; got "
	const before1971 = "due: must be in 1971 or later: an earlier time is one that was never set; got "
	const noUnit = "due: must be at least 1ms: In takes a time.Duration, as in 30*time.Minute; got "
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
		"a zero time and a delay":   {At(time.Time{}.Add(30 * time.Minute)), before1971 + "0001-01-01T00:30:00Z"},
		"a zero column":             {At(time.Unix(0, 0)), before1971 + "1970-01-01T00:00:00Z"},
		"the end of 1970":           {At(time.UnixMilli(31_536_000_000 - 1)), before1971 + "1970-12-31T23:59:59Z"},
		"years before any time":     {At(time.Unix(math.MinInt64, 0)), before1971},
		"years after any time":      {At(time.Unix(math.MaxInt64, 0)), "due: must be at most 100 years ahead"},
		"a forgotten unit":          {In(30), noUnit + "30ns"},
		"a larger one":              {In(1800), noUnit + "1.8µs"},
		"less than a millisecond":   {In(time.Millisecond - 1), noUnit + "999.999µs"},
		"a forgotten delay":         {In(0), "due: must be given; Now() is due now; got In(0)"},
		"100 years and one unit":    {In(36525*24*time.Hour + 1), far + "876600h0m0.000000001s"},
		"the longest delay":         {In(math.MaxInt64), far + "2562047h47m16.854775807s"},
	}
}

// TestAForgottenTimeIsRefused: nothing is stored, because it would be due now.
func TestAForgottenTimeIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), request("there", In(time.Hour)))
	check.OK(f.t, err)
	for name, row := range misusedTimes() {
		t.Run(name, func(t *testing.T) {
			r := request("a", row.when)
			_, scheduled := c.Schedule(f.t.Context(), r)
			_, moved := c.Reschedule(f.t.Context(), orders, "there", row.when)
			for call, err := range map[string]error{
				"Check": r.Check(task.DefaultMaxPayload, time.Now()), "Schedule": scheduled,
				"ScheduleMany": c.ScheduleMany(f.t.Context(), []Request{r})[0].Err, "Reschedule": moved,
			} {
				var rule *task.RuleError
				if !errors.As(err, &rule) || rule.Field != "due" || !strings.HasPrefix(err.Error(), row.want) {
					t.Errorf("%s: got %v, want %s", call, err, row.want)
				}
			}
		})
	}
	f.inPlace(map[string]bool{"there": true})
	s, err := c.Get(f.t.Context(), orders, "there")
	check.OK(f.t, err)
	if left := s.Due.UnixMilli() - f.now(); left < time.Hour.Milliseconds()/2 {
		t.Errorf("the task that was there is due in %d ms", left)
	}
}

// TestAHundredYearsAre36525Days, to the millisecond: the largest delay is accepted however
// many leap years lie ahead.
func TestAHundredYearsAre36525Days(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	const limit = 36525 * 24 * time.Hour
	before := f.now()
	due, err := c.Schedule(f.t.Context(), request("a", In(limit)))
	check.OK(f.t, err)
	if ahead := due.UnixMilli() - before; ahead < limit.Milliseconds() {
		t.Errorf("due %d ms ahead, want %d", ahead, limit.Milliseconds())
	}
	r, now := request("b", When{}), time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]bool{limit: true, limit + time.Millisecond: false} {
		r.When = At(now.Add(ahead))
		if err := r.Check(task.DefaultMaxPayload, now); (err == nil) != want {
			t.Errorf("%s ahead: %v", ahead, err)
		}
	}
}

// TestThePastIsNow: a time long ago, since 1971, is valid.
func TestThePastIsNow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	for name, when := range map[string]When{
		"now":                Now(),
		"negative":           In(-time.Hour),
		"last year":          At(time.Now().AddDate(-1, 0, 0)),
		"less than a ms ago": In(-1),
		"1971":               At(time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		before := f.now()
		due, err := c.Schedule(f.t.Context(), request(name, when))
		check.OK(f.t, err)
		if due.UnixMilli() < before || due.UnixMilli() > f.now() {
			t.Errorf("%s: due %v", name, due)
		}
	}
}
