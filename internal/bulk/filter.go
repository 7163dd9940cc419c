package bulk

import (
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Filter selects stored tasks; the zero value selects all.
type Filter struct {
	// IDs selects these tasks, and the other fields don't count.
	IDs []string
	// State, Prefix, Group, DueAfter and DueBefore select as in admin.Tasks.
	State               task.State
	Prefix, Group       string
	DueAfter, DueBefore time.Time
}

// All reports whether the filter selects all tasks.
func (f Filter) All() bool {
	return len(f.IDs) == 0 && f.State == "" && f.Prefix == "" && f.Group == "" && f.DueAfter.IsZero() &&
		f.DueBefore.IsZero()
}

// String describes the filter, as in " in state retrying, due until 2026-12-01T10:00:00.000Z";
// "" if it selects all tasks.
func (f Filter) String() string {
	if n := len(f.IDs); n > 0 {
		return fmt.Sprintf(" with %d given IDs", n)
	}
	var parts []string
	if f.State != "" {
		parts = append(parts, " in state "+string(f.State))
	}
	if f.Prefix != "" {
		parts = append(parts, fmt.Sprintf(" with IDs that begin with %q", f.Prefix))
	}
	if f.Group != "" {
		parts = append(parts, fmt.Sprintf(" of the group %q", f.Group))
	}
	if !f.DueAfter.IsZero() {
		parts = append(parts, " due from "+duetime.Text(f.DueAfter))
	}
	if !f.DueBefore.IsZero() {
		parts = append(parts, " due until "+duetime.Text(f.DueBefore))
	}
	return strings.Join(parts, ",")
}

// Counts says how far a change is. Each matched task is changed, skipped or failed, or its
// turn has not come.
type Counts struct {
	// Matched is how many tasks the filter selected so far.
	Matched int64 `json:"matched"`
	Changed int64 `json:"changed"`
	// Skipped tasks need no change: one that is due already for RunNow, or one that was
	// moved by the same Op. Or they may not be changed: RunNow and Move leave leased and
	// parked tasks alone. Or they were delivered or changed after the filter saw them.
	Skipped int64 `json:"skipped"`
	// Failed tasks may have been changed, if the error is task.ErrUncertain.
	Failed int64 `json:"failed"`
}

// MissingError names tasks that aren't stored. It matches task.ErrNotFound.
type MissingError struct {
	Topic string
	IDs   []string
}

// missingNamed is how many IDs a MissingError names.
const missingNamed = 10

func (e *MissingError) Error() string {
	names := make([]string, 0, missingNamed)
	for _, id := range e.IDs[:min(len(e.IDs), missingNamed)] {
		names = append(names, fmt.Sprintf("%q", shard.ShortID(id)))
	}
	text := strings.Join(names, ", ")
	if more := len(e.IDs) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("topic %s: %v: %s", e.Topic, task.ErrNotFound, text)
}

// Unwrap returns task.ErrNotFound.
func (e *MissingError) Unwrap() error { return task.ErrNotFound }
