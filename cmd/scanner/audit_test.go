package main

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/task"
)

// audit returns what `scanner audit -o json` prints.
func (o *operator) audit(more ...string) (entries []map[string]any) {
	o.t.Helper()
	code, text := o.call(append([]string{"audit", "-o", "json"}, more...)...)
	if err := json.Unmarshal([]byte(text), &entries); err != nil || code != cli.Done {
		o.t.Fatalf("code %d, %v: %s", code, err, text)
	}
	return entries
}

// audited returns the one entry of a command.
func (o *operator) audited(command string, more ...string) (entry map[string]any) {
	o.t.Helper()
	var last float64
	for _, e := range o.audit(more...) {
		at := e["at_ms"].(float64)
		if last != 0 && at > last {
			o.t.Errorf("%v is newer than the entry before it", e)
		}
		last = at
		if e["command"] == command {
			entry = e
		}
	}
	return entry
}

// TestEachVerbThatChangesTasksIsAudited: with its author, tasks and counts, the newest first.
// Dry runs and refused commands leave no entry.
func TestEachVerbThatChangesTasksIsAudited(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.wants(cli.Done, "nothing is recorded\n", "audit")
	o.serve("orders", 1)
	o.put(task.In(time.Hour), "a-1", "a-2", "b-1")
	o.wants(cli.Done, "would", "tasks", "run-now", "orders", "--all", "--dry-run")
	o.wants(cli.Usage, "--yes", "tasks", "cancel", "orders", "--all")
	for _, row := range []struct {
		args            []string
		command, filter string
		changed         float64
	}{
		{[]string{"tasks", "move", "orders", "--id-prefix", "a-", "--in", "2h", "--yes"}, "tasks move --in 2h",
			`with IDs that begin with "a-"`, 2},
		{[]string{"tasks", "run-now", "orders", "b-1"}, "tasks run-now", `ID "b-1"`, 1},
		{[]string{"tasks", "cancel", "orders", "--all", "--yes"}, "tasks cancel", "all", 3},
		{[]string{"parked", "replay", "orders", "--all", "--yes"}, "parked replay", "all", 0},
		{[]string{"parked", "purge", "orders", "--reason", "no route", "--yes"}, "parked purge",
			`with "no route" in its reason`, 0},
		{[]string{"topic", "pause", "orders", "--in-redis", "--reason", "twice", "--no-wait"}, "topic pause --in-redis",
			"twice", 0},
	} {
		if code, text := o.call(append(row.args, "--as", "ann")...); code != cli.Done {
			t.Fatalf("%v: code %d, %s", row.args, code, text)
		}
		e := o.audited(row.command, "--topic", "orders")
		counts, _ := e["counts"].(map[string]any)
		host, _ := os.Hostname()
		if e["command"] != row.command || e["filter"] != row.filter || counts["changed"] != row.changed ||
			e["by"] != "ann" || e["state"] != "done" || e["topic"] != "orders" || e["host"] != host ||
			e["ended_at"] == nil {
			t.Errorf("%v: %v", row.args, e)
		}
	}
	if n := len(o.audit()); n != 6 {
		t.Errorf("%d entries, want 6", n)
	}
	o.wants(cli.Done, "tasks cancel", "audit", "orders")
	o.wants(cli.Done, "[]", "audit", "-o", "json", "--topic", "other")
	o.wants(cli.Usage, "--as", "tasks", "cancel", "orders", "x", "--as", "")
	_, beat := o.store.Registry().Heartbeat(t.Context(), "one", time.Minute, time.Hour)
	_, described := o.store.Registry().Describe(t.Context(), "one", []byte(
		`{"instance":"one","problems":[{"kind":"data_lost","severity":"broken","facts":{"expected":"LOST"}}]}`))
	if err := errors.Join(beat, described); err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Done, "accepted", "data", "accept", "--yes", "--as", "ann")
	if e := o.audited("data accept"); e["state"] != "done" || e["filter"] != "the lost data LOST" || e["topic"] != nil {
		t.Errorf("data accept: %v", e)
	}
}
