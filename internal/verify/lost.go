package verify

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// LostTask says where a lost task is.
type LostTask struct {
	ID string `json:"id"`
	// State is "not stored", or the state of the stored task.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Events are the kinds of its events, if the topic keeps history.
	Events []string `json:"events,omitempty"`
}

// String describes the task on one line.
func (t LostTask) String() string {
	text := t.ID + ": " + t.State
	if t.Reason != "" {
		text += ", " + t.Reason
	}
	if len(t.Events) > 0 {
		text += "; history: " + strings.Join(t.Events, ", ")
	}
	return text
}

// find finds where lost tasks are.
func (t *Test) find(ctx context.Context, r *Report, lost []uint64) {
	const batch = 1000 // limits the memory for payloads
	for numbers := range slices.Chunk(lost, batch) {
		ids := make([]string, len(numbers))
		for i, n := range numbers {
			ids[i] = t.ledger.id(n)
		}
		for i, got := range t.cfg.Client.GetMany(ctx, t.cfg.Topic, ids) {
			lost := whereabouts(ids[i], got)
			if lost.State == string(task.Parked) {
				r.Parked++
			}
			if len(r.LostTasks) < shown {
				// Without the right to read the history, the state alone is shown.
				events, _ := t.cfg.Client.History(ctx, t.cfg.Topic, lost.ID)
				for _, e := range events {
					lost.Events = append(lost.Events, string(e.Kind))
				}
				r.LostTasks = append(r.LostTasks, lost)
			}
		}
	}
}

// whereabouts says where a lost task is.
func whereabouts(id string, got producer.GetResult) LostTask {
	s := got.Task
	switch {
	case errors.Is(got.Err, task.ErrNotFound):
		return LostTask{ID: id, State: "not stored"}
	case got.Err != nil:
		return LostTask{ID: id, State: "unknown", Reason: got.Err.Error()}
	case s.State == task.Waiting && (s.Attempt > 1 || s.NextAttempt.After(s.Due)):
		s.State = producer.Retrying // as in lists of tasks
	}
	return LostTask{ID: id, State: string(s.State), Reason: s.Reason}
}
