// Package recurrence says when work that recurs is due next, in the local time of a zone. A
// handler, or the program that starts a chain of tasks, schedules the next run with it.
//
// Where the clocks change, as for daylight saving time, some local times don't exist or come
// twice:
//
//   - A time that is skipped is due when the clock has jumped, at the next valid time. Several
//     times in one jump are due together, once.
//   - A time that comes twice is due once, at the first.
//
// Zones come from the IANA database, as time.LoadLocation finds it. A program for systems
// without it imports time/tzdata.
package recurrence

import (
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/duefleet/duefleet/task"
)

// Rule is a set of times. The zero Rule has none. A Rule is a value, and safe for concurrent
// use.
type Rule struct {
	every time.Duration // 0: by dates
	dates *cron.SpecSchedule
	zone  *time.Location
	text  string
	until time.Time // zero: no end
	runs  int       // that are left, for Next; 0: no limit
	each  bool      // for Next
}

// MinEvery is the shortest distance of Every.
const MinEvery = time.Second

// maxSearchYears is how far a rule's next date may be away: the 29th of February may come
// after eight years.
const maxSearchYears = 9

// Every returns the rule of times that are d apart: a second to task.MaxAhead, cut to the
// millisecond. It knows no zone: a day is always 24 hours. The error is a *task.RuleError.
func Every(d time.Duration) (Rule, error) {
	d = d.Truncate(time.Millisecond)
	if d < MinEvery || d > task.MaxAhead {
		return Rule{}, &task.RuleError{Field: "every", Rule: fmt.Sprintf("must be %s to %s", MinEvery, task.MaxAhead),
			Got: d.String()}
	}
	return Rule{every: d, text: "every " + d.String()}, nil
}

// Cron returns the rule of an expression of five fields, in the local time of a zone such as
// Europe/Berlin:
//
//	minute       0-59
//	hour         0-23
//	day          1-31, L (the last one), L-2, 15W (the working day that is nearest to the 15th)
//	month        1-12 or JAN-DEC
//	day of week  0-7 or SUN-SAT (0 and 7 are Sunday), FRI#3 (the third), FRI#L (the last)
//
// A field may be a list, a range, a step or *, as in 0,30 or 9-17 or */15. If both day and day
// of week are given, a date needs one of them, as in POSIX crontab. Descriptors such as @daily
// stand for expressions; @every doesn't: see Every.
//
// The error is a *task.RuleError. The expression can't be read, or has no date, as the 30th of
// February has none; or the zone is unknown. Zone "" is an error, too.
func Cron(expression, zone string) (Rule, error) {
	wrong := func(rule string) (Rule, error) {
		return Rule{}, &task.RuleError{Field: "cron", Rule: rule, Got: fmt.Sprintf("%.80q", expression)}
	}
	if strings.Contains(expression, "=") {
		return wrong("must have no zone; the zone is a value of its own")
	}
	parser := cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor |
		cron.Extended | cron.DowOrDom).WithMaxSearchYears(maxSearchYears)
	schedule, err := parser.Parse(expression)
	if err != nil {
		return wrong("must be minute, hour, day, month and day of week: " + err.Error())
	}
	dates, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return wrong("must be minute, hour, day, month and day of week")
	}
	dates.Location = time.UTC // it counts local times as if they were of UTC: see After
	if dates.Next(time.Date(2096, time.March, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wrong("must have a date")
	}
	location, err := loadZone(zone)
	if err != nil {
		return Rule{}, err
	}
	return Rule{dates: dates, zone: location, text: expression + " " + zone}, nil
}

func loadZone(zone string) (*time.Location, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		const rule = "must be a name of the IANA database, such as Europe/Berlin or UTC " +
			"(a program without the database imports time/tzdata)"
		return nil, &task.RuleError{Field: "zone", Rule: rule, Got: fmt.Sprintf("%.80q", zone)}
	}
	return location, nil
}

// Until returns the rule without the times after end. The zero time means no end.
func (r Rule) Until(end time.Time) Rule {
	r.until = end
	return r
}

// String returns the rule for people.
func (r Rule) String() string {
	if r.until.IsZero() {
		return r.text
	}
	return r.text + " until " + r.until.UTC().Format(time.RFC3339)
}

// After returns the first time after t, cut to the millisecond, in the zone of the rule. ok is
// false if there is none.
//
// For Every, t must be the time of a run, such as task.Delivery.FirstDue: the next one is that
// much later. For Cron it may be any time.
func (r Rule) After(t time.Time) (next time.Time, ok bool) {
	switch {
	case r.every > 0:
		next = t.Truncate(time.Millisecond).Add(r.every)
	case r.dates != nil:
		next = r.dateAfter(t.In(r.zone))
	}
	if next.IsZero() || !r.until.IsZero() && next.After(r.until) {
		return time.Time{}, false
	}
	return next, true
}

// dateAfter searches the local times after t. They and their instants have the same order, so
// the first one whose instant is after t is the next one. The search begins at the local time
// of t: the instants of earlier local times aren't after t.
func (r Rule) dateAfter(t time.Time) time.Time {
	_, offset := t.Zone()
	local := t.Add(time.Duration(offset) * time.Second).UTC()
	for {
		if local = r.dates.Next(local); local.IsZero() {
			return time.Time{}
		}
		if at := instant(local, r.zone); at.After(t) {
			return at
		}
	}
}

// instant returns the time at which the clocks of a zone show a local time first. If they skip
// it, instant returns the time of the jump. local has its fields in UTC.
func instant(local time.Time, zone *time.Location) time.Time {
	// The clocks of a zone are less than a day ahead of UTC, so they show it later than this.
	for at := local.Add(-24 * time.Hour).In(zone); ; {
		_, offset := at.Zone()
		shown := local.Add(-time.Duration(offset) * time.Second).In(zone)
		begin, end := at.ZoneBounds()
		switch {
		case !begin.IsZero() && shown.Before(begin): // the jump to this period has skipped it
			return begin
		case end.IsZero() || shown.Before(end):
			return shown
		}
		at = end
	}
}
