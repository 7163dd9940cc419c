package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestScheduleARecurringTask: with the first run of the rule or another one, and get shows it.
func TestScheduleARecurringTask(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	before := c.now()
	r := c.run("", "schedule", "orders", "--id", "every", "--every", "1d", "--runs", "2", "--each")
	check.Equal(t, "exit code and message", fmt.Sprint(r.code, r.stderr), "0")
	got := c.must("get", "orders", "--id", "every")
	check.Equal(t, "rule", fmt.Sprint(got["recurrence"]), "map[each:true every:24h0m0s runs:2]")
	first, err := got["due_ms"].(interface{ Int64() (int64, error) }).Int64()
	check.OK(t, err)
	if day := int64(24 * 3600 * 1000); first < before+day || first > c.now()+day {
		t.Errorf("the first run is %d ms after the request", first-before)
	}
	runs, _ := got["next_runs"].([]any)
	check.Equal(t, "runs", len(runs), 2)
	check.Equal(t, "the first", runs[0], got["due"])

	c.must("schedule", "orders", "--id", "cron", "--cron", "0 9 1 * *", "--zone", "Europe/Berlin",
		"--at", "2099-12-24T18:00:00Z", "--until", "2100-01-31T00:00:00Z", "--payload", "p")
	got = c.must("get", "orders", "--id", "cron")
	check.Equal(t, "rule", fmt.Sprint(got["recurrence"]),
		"map[cron:0 9 1 * * until:2100-01-31T00:00:00.000Z zone:Europe/Berlin]")
	check.Equal(t, "runs", fmt.Sprint(got["next_runs"]), "[2099-12-24T18:00:00.000Z 2100-01-01T08:00:00.000Z]")
	c.must("reschedule", "orders", "--id", "cron", "--at", "2099-12-25T18:00:00Z")
	got = c.must("get", "orders", "--id", "cron")
	check.Equal(t, "planned", got["planned"], any("2099-12-24T18:00:00.000Z"))
	if text := c.run("", "get", "orders", "--id", "cron").stdout; !strings.Contains(text, `"next_runs": [`) {
		t.Errorf("get printed %s", text)
	}
	for flags, want := range map[string]string{
		"--every 1ms":                "every: must be 1s to 876600h0m0s; got 1ms",
		"--cron @daily --zone Mars":  "zone: must be a name of the IANA database",
		"--every 1h --cron @daily":   "every: must not be set together with cron or zone",
		"--every 1h --runs -1":       "runs: must be 0 to",
		"--every 1h --until 1e12":    `--until "1e12": want RFC 3339`,
		"--every 1h --until 31536e6": `--until "31536e6": want RFC 3339`,
	} {
		r := c.run("", append([]string{"schedule", "orders", "--id", "bad"}, strings.Fields(flags)...)...)
		if r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, %s", flags, r.code, r.stderr)
		}
	}
	check.Equal(t, "tasks", c.stored(), 2)
}

// TestExportThenLoadOfRecurringTasks: the rule, the runs that are left and the next run are the
// same, also if the run was moved. A run keeps its series.
func TestExportThenLoadOfRecurringTasks(t *testing.T) {
	t.Parallel()
	here, there := newSandbox(t), newSandbox(t)
	client := here.client()
	hourly := producer.Cron("0 * * * *", "Europe/Berlin")
	hourly.Runs, hourly.Each, hourly.Until = 7, true, time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)
	message := &task.AMQP{RoutingKey: "k", Headers: map[string]any{"n": int16(7)}}
	for id, r := range map[string]producer.Request{
		"hourly": {Recurrence: hourly}, "moved": {Recurrence: hourly},
		"every":     {Recurrence: producer.Every(90 * time.Minute), When: producer.In(time.Hour)},
		"of intake": {Recurrence: producer.Every(time.Hour), AMQP: message},
		"a@run":     {When: producer.In(time.Hour), Headers: map[string]string{"h": "v", task.HeaderSeries: "a"}},
		"b@run": {When: producer.In(time.Hour), AMQP: &task.AMQP{RoutingKey: "k",
			Headers: map[string]any{task.HeaderSeries: "b"}}},
	} {
		r.Topic, r.ID, r.Payload = "orders", id, []byte("p")
		_, err := client.Schedule(t.Context(), r)
		check.OK(t, err)
	}
	here.must("reschedule", "orders", "--id", "moved", "--in", "10m")
	want := here.recurring()
	check.Equal(t, "a run", strings.Contains(want["a@run"], "series a"), true)
	file := filepath.Join(t.TempDir(), "orders.ndjson")
	wantCounts(t, here.must("export", "orders", "--file", file), "tasks=6 failed=0")
	wantCounts(t, there.must("load", "orders", "--file", file), "scheduled=6 bad=0 past_due=0")
	check.Equal(t, "after load", fmt.Sprint(there.recurring()), fmt.Sprint(want))

	text, err := os.ReadFile(file)
	check.OK(t, err)
	requests := strings.ReplaceAll(string(text), `{"id"`, `{"verb":"schedule","id"`)
	if r, answers := there.pipe(strings.NewReader(requests), "orders"); r.code != 0 || len(answers) != 6 {
		t.Fatalf("exit code %d, %d answers: %s", r.code, len(answers), r.stderr)
	}
	check.Equal(t, "after pipe", fmt.Sprint(there.recurring()), fmt.Sprint(want))
}

// recurring returns the tasks of the topic orders by ID, without where moved runs were planned.
func (c *sandbox) recurring() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for id, s := range c.tasks("orders") {
		all[id] = fmt.Sprintf("due %v %q %v amqp %+v series %s", s.Due, s.Payload, s.Headers, s.AMQP, s.Series)
		if s.Recurrence != nil {
			s.Recurrence.Planned = time.Time{}
			all[id] = fmt.Sprintf("due %v %q %+v", s.Due, s.Payload, *s.Recurrence)
		}
	}
	return all
}

// TestARecurringTaskIsNotPastDue: its first run without a due time is never in the past.
func TestARecurringTaskIsNotPastDue(t *testing.T) {
	t.Parallel()
	r := &ndjson.Request{Request: producer.Request{Recurrence: producer.Every(time.Hour)}}
	check.Equal(t, "past", newDueOutput(r, time.Now()).past, 0)
}
