package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestWhatAReplayLeavesIsToldToScripts: the output begins with the number of replayed
// tasks, and as JSON it also holds the tasks left. The exit code is 1.
func TestWhatAReplayLeavesIsToldToScripts(t *testing.T) {
	t.Parallel()
	left := &admin.LeftError{
		Topic: "orders", Tasks: 2, IDs: []string{"a", strings.Repeat("x", 300)},
		Shards: &shard.UnreadableError{Topic: "orders", Shards: []shard.UnreadableShard{{Shard: 2, Error: "WRONGTYPE"}}},
	}
	if code := cli.Code(errors.Join(nil, left)); code != cli.Failed {
		t.Errorf("exit code %d", code)
	}
	if text := left.Error(); strings.Contains(text, strings.Repeat("x", 256)) ||
		!strings.Contains(text, `2 tasks can't be read, and stay parked`) || !strings.Contains(text, "shard 2") {
		t.Errorf("it says %s", text)
	}
	for _, c := range []struct {
		format cli.Format
		left   *admin.LeftError
		want   string
	}{
		{cli.Text, left, "replayed 5\n"},
		{cli.JSON, nil, `{"replayed":5}` + "\n"},
		{cli.JSON, left, `{"replayed":5,"unreadable":2,"unreadable_ids":["a","` + strings.Repeat("x", 300) +
			`"],"unreadable_shards":[{"shard":2,"error":"WRONGTYPE"}]}` + "\n"},
	} {
		var out bytes.Buffer
		if err := printChanged(&out, c.format, "replayed", 5, c.left); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s: %s, want %s", c.format, out.String(), c.want)
		}
	}
}

// parkAs parks a task as a scanner does.
func (o *operator) parkAs(topic, id, reason string) {
	o.t.Helper()
	o.serve(topic, 1)
	fixture.Park(o.t, o.store.Topic(topic), id, reason)
}

// TestParkedTasksAreChosenByReasonAndAge: reason and age select the tasks to list, replay
// and purge, in one topic or in all. A change of several tasks needs a confirmation.
func TestParkedTasksAreChosenByReasonAndAge(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.wants(cli.Done, "nothing is parked\n", "parked", "ls")
	o.parkAs("orders", "o 1", "returned: 312 NO_ROUTE")
	o.parkAs("orders", "o-2", "handler failed")
	o.parkAs("orders", "o-3", "handler failed")
	o.parkAs("mails", "m-1", "returned: 312 NO_ROUTE")
	ls := func(more ...string) []map[string]any {
		t.Helper()
		code, text := o.call(append([]string{"parked", "ls", "-o", "json"}, more...)...)
		var all []map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil || code != cli.Done {
			t.Fatalf("code %d, %v: %s", code, err, text)
		}
		return all
	}
	counts := func(want int, more ...string) {
		t.Helper()
		if all := ls(more...); len(all) != want {
			t.Errorf("%q: listed %v, want %d", more, all, want)
		}
	}
	one := ls()[0]
	if one["topic"] != "mails" || one["id"] != "m-1" || one["reason"] != "returned: 312 NO_ROUTE" ||
		one["parked_at_ms"].(float64) < one["due_ms"].(float64) || one["parked_at"] == nil {
		t.Errorf("listed %v", one)
	}
	counts(4)
	counts(3, "--topic", "orders")
	counts(2, "--reason", "NO_ROUTE")
	counts(2, "--reason", "no_route")
	o.wants(cli.Done, "none match\n", "parked", "ls", "--reason", "exchange")
	o.wants(cli.Done, "none match\n", "parked", "ls", "--older-than", "1h")
	counts(1, "--reason", "NO_ROUTE", "--topic", "orders")
	o.parkAs("mails", "m-2", "")
	counts(1, "--no-reason")
	o.wants(cli.Done, "purged 1", "parked", "purge", "mails", "--no-reason", "--yes")
	counts(4, "--older-than", "0s")
	counts(0, "--older-than", "1h")
	counts(0, "--parked-before=-1h")
	counts(4, "--parked-before", "1m")
	o.wants(cli.Done, `"o 1"`, "parked", "ls")
	if _, text := o.call("parked", "ls", "-o", "ndjson"); strings.Count(text, "\n{") != 3 {
		t.Errorf("lines: %s", text)
	}
	o.wants(cli.Done, "replayed 0", "parked", "replay", "--topic", "orders", "--older-than", "1h", "--yes")
	o.wants(cli.Done, "replayed 1", "parked", "replay", "--topic", "orders", "--reason", "NO_ROUTE", "--yes")
	o.wants(cli.Usage, `delete all that is parked in topic orders with "handler" in its reason: 2 tasks`, "parked",
		"purge", "--topic", "orders", "--reason", "handler")
	o.wants(cli.Done, "purged 2", "parked", "purge", "--topic", "orders", "--reason", "handler", "--older-than", "0s",
		"--yes")
	counts(1)
	for part, args := range map[string][]string{
		"name a topic": {"replay", "--all"},
		"or --reason, --no-reason, --parked-before or": {"purge", "--topic", "orders"},
		"give either --reason or --no-reason":          {"ls", "--reason", "a", "--no-reason"},
		"--id stands alone":                            {"purge", "--topic", "orders", "--id", "a", "--reason", "b"},
		"either --parked-before or --older-than":       {"ls", "--older-than", "1h", "--parked-before", "0"},
		`--older-than "-1h": want a duration`:          {"ls", "--older-than=-1h"},
		"--parked-before 1796119200: looks like":       {"ls", "--parked-before", "1796119200"},
		"must be table, json or ndjson":                {"ls", "-o", "text"},
	} {
		o.wants(cli.Usage, part, append([]string{"parked"}, args...)...)
	}
}

// TestAgeIsNotGuessed: the time of parking is unknown for a damaged record.
func TestAgeIsNotGuessed(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.serve("orders", 1)
	o.park("damaged")
	o.wants(cli.Done, "damaged", "parked", "ls")
	o.wants(cli.Done, "none match\n", "parked", "ls", "--older-than", "0s")
	o.wants(cli.Done, "purged 0", "parked", "purge", "--topic", "orders", "--older-than", "0s", "--yes")
	o.wants(cli.Done, "purged 1", "parked", "purge", "--topic", "orders", "--reason", "record", "--yes")
}

// TestAReplayAsksFirst: without a terminal replay needs --yes, like purge. --dry-run says
// how many tasks it would replay. A single task given by --id needs no confirmation.
func TestAReplayAsksFirst(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	for i := range 5 {
		o.parkAs("orders", fmt.Sprintf("o-%d", i), "returned: 312 NO_ROUTE")
	}
	parked := func(want int64) {
		t.Helper()
		if n, err := (admin.Parked{Topic: o.store.Topic("orders")}).Count(t.Context()); err != nil || n != want {
			t.Errorf("%d are parked, %v; want %d", n, err, want)
		}
	}
	replay := func(more ...string) []string { return append([]string{"parked", "replay", "orders"}, more...) }
	o.wants(cli.Usage, "this would replay all that is parked in topic orders: 5 tasks: without a terminal to ask on it "+
		"needs --yes; nothing was replayed", replay("--all")...)
	o.wants(cli.Usage, `this would replay at most 2 of what is parked in topic orders with "no_route" in its reason: 2 tasks, in about 2s:`,
		replay("--reason", "no_route", "--limit", "2", "--rate", "1")...)
	o.wants(cli.Done, "would replay all that is parked in topic orders: 5 tasks; a dry run, nothing was replayed\n",
		replay("--all", "--dry-run")...)
	o.wants(cli.Done, `{"would_replay":3}`+"\n", replay("--all", "--limit", "3", "--dry-run", "-o", "json")...)
	parked(5)
	o.wants(cli.Done, "replayed 1\n", replay("--id", "o-0")...)
	o.wants(cli.Done, `{"replayed":3}`+"\n", replay("--all", "--yes", "--limit", "3", "--rate", "1000", "-o", "json")...)
	parked(1)
	for part, args := range map[string][]string{
		"--limit 0: must be at least 1":             {"--all", "--limit", "0"},
		"--rate -1: must be at least 1":             {"--all", "--rate", "-1"},
		"--id stands alone: it names one task, and": {"--id", "o-1", "--rate", "5"},
		"--id stands alone: `scanner parked ls`":    {"--id", "o-1", "--dry-run"},
	} {
		o.wants(cli.Usage, part, replay(args...)...)
	}
	o.wants(cli.NotFound, "unknown topic", "parked", "replay", "none", "--all", "--dry-run")
	parked(1)
}

// TestAParkedTaskSaysWhenItWasDueFirst: in both forms, and not where its record is damaged.
func TestAParkedTaskSaysWhenItWasDueFirst(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(admin.NewParkedLine(parkedRecord("o-1", 1796119200000, 2, "why")))
	want := `"due":"2026-12-01T10:00:00.000Z","due_ms":1796119200000,` +
		`"first_due":"2026-12-01T09:00:00.000Z","first_due_ms":1796115600000,`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("got %s, %v; want in it %s", text, err, want)
	}
	text, err = json.Marshal(admin.NewParkedLine(damaged))
	if err != nil || strings.Contains(string(text), "first_due") {
		t.Errorf("of a damaged record: %s, %v", text, err)
	}
}
