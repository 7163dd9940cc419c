package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// TestGetSaysWhenATaskWasDueFirst: in both forms, as it says when it is due.
func TestGetSaysWhenATaskWasDueFirst(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1796119200000)
	s := producer.Stored{State: task.Waiting, NextAttempt: due, Task: task.Task{Due: due, FirstDue: due.Add(-time.Hour)}}
	text, err := json.Marshal(newGetOutput(named{}, s))
	if err != nil {
		t.Fatal(err)
	}
	want := `"due":"2026-12-01T10:00:00.000Z","due_ms":1796119200000,` +
		`"first_due":"2026-12-01T09:00:00.000Z","first_due_ms":1796115600000,`
	if !strings.Contains(string(text), want) {
		t.Errorf("got %s, want in it %s", text, want)
	}
}
