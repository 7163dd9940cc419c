package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// put stores tasks in topic orders.
func (o *operator) put(when task.When, ids ...string) {
	o.t.Helper()
	entries := make([]shard.Entry, len(ids))
	for i, id := range ids {
		entries[i] = shard.Entry{ID: id, When: when, Body: []byte{0}}
	}
	for _, r := range router.New(o.store).Topic("orders").Schedule(o.t.Context(), entries) {
		if r.Err != nil {
			o.t.Fatal(r.Err)
		}
	}
}

// TestRecurringTasksAreListedWithTheirRules: the table and JSON have the rule and the next
// times, also of a moved run. A run that is a task of its own names its recurring task.
func TestRecurringTasksAreListedWithTheirRules(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.serve("orders", 4)
	client, err := producer.New(producer.Config{Redis: o.rdb, Prefix: o.prefix})
	check.OK(t, err)
	first := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Hour)
	text := func(hours int) string {
		return first.Add(time.Duration(hours) * time.Hour).Format("2006-01-02T15:04:05.000Z")
	}
	recur := func(id string, r *task.Recurrence) {
		t.Helper()
		_, err := client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: id, Recurrence: r,
			When: task.At(first), Payload: []byte("p"), Headers: map[string]string{"h": "v"}})
		check.OK(t, err)
	}
	recur("dates", producer.Cron("0 * * * *", "UTC"))
	recur("every", &task.Recurrence{Every: time.Hour, Runs: 3, Each: true, Until: first.Add(48 * time.Hour)})
	run := task.RunID("every", first.Add(-time.Hour))
	fixture.Store(t, o.store.Topic("orders"), shard.Entry{ID: run, When: task.At(first),
		Body: shard.EncodeBody(&task.Task{Series: "every", Headers: map[string]string{"h": "v"}})})
	_, err = client.Reschedule(t.Context(), "orders", "dates", task.At(first.Add(90*time.Minute)))
	check.OK(t, err)
	o.wants(cli.Done, "\n  0 * * * * UTC; moved from "+text(0)+"; then "+text(2)+", "+text(3)+"\n", "tasks", "ls",
		"orders")
	o.wants(cli.Done, "\n  every 1h0m0s until "+first.Add(48*time.Hour).Format(time.RFC3339)+"; 3 runs left; "+
		"each missed run comes; then "+text(1)+", "+text(2)+"\n", "tasks", "ls", "orders")
	want := map[string]string{
		"dates": `{"cron":"0 * * * *","zone":"UTC","planned":"` + text(0) + `","next":["` +
			first.Add(90*time.Minute).Format("2006-01-02T15:04:05.000Z") + `","` + text(2) + `","` + text(3) + `"]}`,
		"every": `{"every":"1h0m0s","until":"` + text(48) + `","runs":3,"each":true,"next":["` + text(0) + `","` +
			text(1) + `","` + text(2) + `"]}`,
		run: "",
	}
	for _, more := range [][]string{nil, {"--payload"}, {"--limit", "9"}} {
		code, out := o.call(append([]string{"tasks", "ls", "orders", "-o", "json"}, more...)...)
		var all []struct {
			ID, Series string
			Recurrence json.RawMessage
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil || code != cli.Done || len(all) != 3 {
			t.Fatalf("code %d, %v: %s", code, err, out)
		}
		for _, one := range all {
			var got bytes.Buffer
			if one.Recurrence != nil {
				check.OK(t, json.Compact(&got, one.Recurrence))
			}
			check.Equal(t, "recurrence of "+one.ID, got.String(), want[one.ID])
			check.Equal(t, one.ID+" is a run", one.Series == "every", one.ID == run)
		}
	}
}

// TestTasksAreListedForPeopleAndScripts: tasks are listed as a table, an array or lines;
// a wrong flag is an error.
func TestTasksAreListedForPeopleAndScripts(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	ls := func(more ...string) []string { return append([]string{"tasks", "ls", "--topic", "orders"}, more...) }
	o.wants(cli.NotFound, "unknown topic", ls()...)
	o.serve("orders", 4)
	o.wants(cli.Done, "no such tasks\n", ls()...)
	o.wants(cli.Done, "[]\n", ls("-o", "json")...)
	o.put(task.At(time.UnixMilli(4099802400123)), "o 1", "o-2")
	o.put(task.In(time.Hour), "p-1")
	o.wants(cli.Done, `"o 1"  waiting  2099-12-01T10:00:00.123Z (in `, ls()...)
	code, text := o.call(ls("-o", "json", "--id-prefix", "o")...)
	var all []map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != cli.Done || len(all) != 2 {
		t.Fatalf("code %d, %v: %s", code, err, text)
	}
	one := all[0]
	if one["id"] == "o-2" {
		one = all[1]
	}
	for key, want := range map[string]any{
		"topic": "orders", "id": "o 1", "state": "waiting", "due": "2099-12-01T10:00:00.123Z", "due_ms": 4099802400123.0,
		"next_attempt": "2099-12-01T10:00:00.123Z", "next_attempt_ms": 4099802400123.0, "attempts": 0.0, "redelivered": false,
	} {
		if one[key] != want {
			t.Errorf("%s: got %v, want %v", key, one[key], want)
		}
	}
	if code, text := o.call(append(ls("--limit", "2", "-o", "ndjson"), "--due-after",
		"4099802400123")...); code != cli.Done || strings.Count(text, "\n") != 2 || text[0] != '{' {
		t.Errorf("code %d: %s", code, text)
	}
	o.wants(cli.Done, "p-1", "tasks", "find", "--topic", "orders", "--due-before", "2h", "--due-after=-1m", "--state",
		"waiting")
	o.wants(cli.Done, "no such tasks", ls("--due-before", "0.5h")...)
	for part, args := range map[string][]string{
		"name a topic":       {"tasks", "ls"},
		"name a command: ls": {"tasks"},
		`--state "due": must be waiting, leased, parked or`: ls("--state", "due"),
		"--limit 0: must be at least 1":                     ls("--limit", "0"),
		"looks like Unix seconds":                           ls("--due-before", "1796119200"),
		`--due-after "soon": want RFC 3339`:                 ls("--due-after", "soon"),
		"must be table, json or ndjson":                     ls("-o", "yaml"),
	} {
		o.wants(cli.Usage, part, args...)
	}
	o.wants(cli.Failed, "topic: must be 1 to 64", "tasks", "ls", "--topic", "a b")
}
