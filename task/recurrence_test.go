package task

import (
	"strings"
	"testing"
	"time"
)

// TestPlannedIsTheTimeOfTheRule, whenever the run is due now.
func TestPlannedIsTheTimeOfTheRule(t *testing.T) {
	t.Parallel()
	planned := time.Date(2026, 12, 1, 8, 0, 0, 123e6, time.UTC)
	moved := planned.Add(time.Hour)
	berlin := time.FixedZone("CET", 3600)
	for name, row := range map[string]struct {
		task Task
		want time.Time // zero: it is no run
	}{
		"a run":                 {Task{ID: RunID("invoice-7", planned), Series: "invoice-7", Due: planned}, planned},
		"of a zone":             {Task{ID: RunID("invoice-7", planned.In(berlin)), Series: "invoice-7"}, planned},
		"moved":                 {Task{ID: RunID("invoice-7", planned), Series: "invoice-7", Due: moved}, planned},
		"of an ID with a time":  {Task{ID: RunID(RunID("a", moved), planned), Series: RunID("a", moved)}, planned},
		"a recurring task":      {Task{ID: "invoice-7", Due: planned, Recurrence: &Recurrence{Every: time.Hour}}, planned},
		"a moved one":           {Task{ID: "a", Due: moved, Recurrence: &Recurrence{Planned: planned}}, planned},
		"no run":                {Task{ID: "invoice-7", Due: planned}, time.Time{}},
		"an ID that looks so":   {Task{ID: RunID("invoice-7", planned), Due: planned}, time.Time{}},
		"another series":        {Task{ID: RunID("invoice-7", planned), Series: "invoice-8"}, time.Time{}},
		"a series without time": {Task{ID: "invoice-7", Series: "invoice-7"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := row.task.Planned()
			if ok == row.want.IsZero() || !got.Equal(row.want) {
				t.Errorf("got %v, %t, want %v", got, ok, row.want)
			}
		})
	}
}

// TestTheLongestRecurringIDHasRoomForARun and no more.
func TestTheLongestRecurringIDHasRoomForARun(t *testing.T) {
	t.Parallel()
	if run := RunID(strings.Repeat("a", MaxRecurringID), time.Now()); len(run) != MaxID {
		t.Errorf("a run's ID has %d bytes, want %d", len(run), MaxID)
	}
}
