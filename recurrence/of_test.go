package recurrence_test

import (
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestTimes: the stored run is the first, also if it was moved, and the others follow the rule.
func TestTimes(t *testing.T) {
	t.Parallel()
	at := func(clock string) time.Time {
		at, err := time.Parse(time.RFC3339, "2026-12-01T"+clock+"Z")
		check.OK(t, err)
		return at
	}
	hourly := task.Recurrence{Cron: "0 * * * *", Zone: "UTC"}
	for name, row := range map[string]struct {
		rule task.Recurrence
		want string
	}{
		"every":              {task.Recurrence{Every: time.Hour}, "10:30 11:30 12:30"},
		"cron":               {hourly, "10:30 11:00 12:00"},
		"two are left":       {task.Recurrence{Every: time.Hour, Runs: 2}, "10:30 11:30"},
		"one is left":        {task.Recurrence{Every: time.Hour, Runs: 1}, "10:30"},
		"an end":             {task.Recurrence{Every: time.Hour, Until: at("11:30:00")}, "10:30 11:30"},
		"moved back":         {task.Recurrence{Every: time.Hour, Planned: at("11:00:00")}, "10:30 12:00 13:00"},
		"moved over others":  {task.Recurrence{Every: time.Hour, Planned: at("08:00:00")}, "10:30 11:00 12:00"},
		"a rule of nonsense": {task.Recurrence{Cron: "0 * * * *", Zone: "Mars"}, "10:30"},
	} {
		var got []string
		for _, at := range recurrence.Times(row.rule, at("10:30:00"), 3) {
			got = append(got, at.UTC().Format("15:04"))
		}
		check.Equal(t, name, strings.Join(got, " "), row.want)
	}
	check.Equal(t, "none", len(recurrence.Times(hourly, at("10:30:00"), 0)), 0)
}
