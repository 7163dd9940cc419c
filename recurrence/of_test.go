package recurrence

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// TestTimes has the stored run first, then those that follow it by the rule.
func TestTimes(t *testing.T) {
	t.Parallel()
	at := func(clock string) time.Time {
		at, err := time.Parse(time.DateTime, "2026-11-25 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	hourly := task.Recurrence{Every: time.Hour}
	dates := task.Recurrence{Cron: "0 * * * *", Zone: "Europe/Berlin"}
	for name, c := range map[string]struct {
		r    task.Recurrence
		due  string
		n    int
		want []string
		now  string
	}{
		"every":      {hourly, "10:10:00", 3, []string{"10:10:00", "11:10:00", "12:10:00"}, ""},
		"cron":       {dates, "10:00:00", 3, []string{"10:00:00", "11:00:00", "12:00:00"}, ""},
		"one":        {dates, "10:00:00", 1, []string{"10:00:00"}, ""},
		"none asked": {dates, "10:00:00", 0, nil, ""},
		"two left": {task.Recurrence{Every: time.Hour, Runs: 2}, "10:10:00", 3,
			[]string{"10:10:00", "11:10:00"}, ""},
		"an end": {task.Recurrence{Every: time.Hour, Until: at("11:10:00")}, "10:10:00", 3,
			[]string{"10:10:00", "11:10:00"}, ""},
		"earlier": {task.Recurrence{Every: time.Hour, Planned: at("10:10:00")}, "07:20:00", 3,
			[]string{"07:20:00", "11:10:00", "12:10:00"}, ""},
		"later": {task.Recurrence{Every: time.Hour, Planned: at("10:10:00")}, "12:30:00", 3,
			[]string{"12:30:00", "13:10:00", "14:10:00"}, ""},
		"later, to another run's time": {task.Recurrence{Every: time.Hour, Planned: at("10:10:00")}, "12:10:00", 2,
			[]string{"12:10:00", "13:10:00"}, ""},
		"dates, earlier": {task.Recurrence{Cron: "0 * * * *", Zone: "UTC", Planned: at("10:00:00")}, "09:30:00", 3,
			[]string{"09:30:00", "11:00:00", "12:00:00"}, ""},
		"dates, later": {task.Recurrence{Cron: "0 * * * *", Zone: "UTC", Planned: at("10:00:00")}, "12:00:00", 3,
			[]string{"12:00:00", "13:00:00", "14:00:00"}, ""},
		"later than the end": {task.Recurrence{Every: time.Hour, Until: at("11:10:00"), Planned: at("10:10:00")}, "12:30:00",
			3, []string{"12:30:00"}, ""},
		"no rule": {task.Recurrence{Cron: "61 * * * *", Zone: "UTC"}, "10:00:00", 3, []string{"10:00:00"}, ""},
		"overdue": {hourly, "10:10:00", 3, []string{"10:10:00", "13:10:00", "14:10:00"}, "12:30:00"},
		"overdue, dates": {task.Recurrence{Cron: "0 * * * *", Zone: "UTC"}, "10:00:00", 3,
			[]string{"10:00:00", "13:00:00", "14:00:00"}, "12:30:00"},
		"overdue, each": {task.Recurrence{Every: time.Hour, Each: true}, "10:10:00", 3,
			[]string{"10:10:00", "11:10:00", "12:10:00"}, "12:30:00"},
		"later, each": {task.Recurrence{Every: time.Hour, Each: true, Planned: at("10:10:00")}, "12:30:00", 3,
			[]string{"12:30:00", "11:10:00", "12:10:00"}, ""},
	} {
		var got []string
		for _, one := range Times(c.r, at(c.due), at(cmp.Or(c.now, "00:00:00")), c.n) {
			got = append(got, one.UTC().Format(time.TimeOnly))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
