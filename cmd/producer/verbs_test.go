package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestTheTopicIsAnArgument: each verb takes the topic as argument, with or without --topic.
func TestTheTopicIsAnArgument(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "orders", "--id", "o-1", "--in", "1h")
	c.must("reschedule", "--id", "o-1", "--in", "2h", "orders")
	if got := c.must("get", "orders", "--id", "o-1", "--topic", "orders"); got["topic"] != "orders" {
		t.Errorf("get printed %v", got)
	}
	c.must("cancel", "orders", "--id", "o-1")
	const line = `{"id":"o-2","in":"1h"}` + "\n"
	for _, args := range [][]string{{"load", "orders"}, {"load", "orders", "-"}, {"load", "--topic", "orders", "-"}} {
		if r := c.run(line, args...); r.code != 0 || c.stored() != 1 {
			t.Errorf("%q: %+v", args, r)
		}
		c.must("cancel", "orders", "--id", "o-2")
	}
	if r := c.run(`{"verb":"schedule","id":"o-3","in":"1h"}`+"\n", "pipe", "orders"); r.code != 0 || c.stored() != 1 {
		t.Errorf("pipe: %+v", r)
	}
	c.must("cancel", "orders", "--id-prefix", "o-", "--yes")
	if c.stored() != 0 {
		t.Error("tasks are left")
	}
}

// TestLifeOfATask schedules, gets, reschedules and cancels a task.
func TestLifeOfATask(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	before := c.now()
	due := c.must("schedule", "--topic", "orders", "--id", "o-1", "--at", "2099-12-01T10:00:00.250Z", "--payload",
		`{"a":"<ü>"}`,
		"--content-type", "application/json", "--header", "tenant=acme", "--header", "expr=a=b,c")
	if due["due"] != "2099-12-01T10:00:00.250Z" || due["due_ms"] != json.Number("4099802400250") || due["id"] != "o-1" ||
		due["topic"] != "orders" {
		t.Errorf("schedule printed %v", due)
	}
	after := c.now()
	got := c.must("get", "--topic", "orders", "--id", "o-1")
	for key, want := range map[string]any{
		"id": "o-1", "topic": "orders", "state": "waiting", "due": "2099-12-01T10:00:00.250Z",
		"due_ms":   json.Number("4099802400250"),
		"attempts": json.Number("0"), "redelivered": false, "content_type": "application/json", "payload": `{"a":"<ü>"}`,
	} {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}
	if headers := got["headers"].(map[string]any); len(headers) != 2 || headers["tenant"] != "acme" ||
		headers["expr"] != "a=b,c" {
		t.Errorf("headers: %v", headers)
	}
	scheduled, err := time.Parse(time.RFC3339, got["scheduled"].(string))
	if at := scheduled.UnixMilli(); err != nil || at < before || at > after {
		t.Errorf("scheduled: %v, want between %d and %d: %v", got["scheduled"], before, after, err)
	}
	for _, absent := range []string{"reason", "payload_base64", "next_attempt"} {
		if v, there := got[absent]; there {
			t.Errorf("%s: %v", absent, v)
		}
	}

	moved := c.must("reschedule", "--topic", "orders", "--id", "o-1", "--at", "4099802400999")
	if moved["due_ms"] != json.Number("4099802400999") || c.payload("o-1") != `{"a":"<ü>"}` {
		t.Errorf("reschedule printed %v, payload is %q", moved, c.payload("o-1"))
	}
	if gone := c.must("cancel", "--topic", "orders", "--id", "o-1"); gone["cancelled"] != true || gone["id"] != "o-1" {
		t.Errorf("cancel printed %v", gone)
	}
	if c.stored() != 0 {
		t.Error("the task is there after cancel")
	}
}

// TestTextOutput: without -o verbs print one line of text; get prints JSON.
func TestTextOutput(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	at := "2099-12-01T10:00:00.000Z"
	for _, test := range []struct{ args, want string }{
		{"schedule --at " + at, `scheduled orders "a b", due ` + at},
		{"reschedule --at " + at, `rescheduled orders "a b", due ` + at},
		{"cancel", `cancelled orders "a b"`},
	} {
		if test.args == "cancel" {
			r := c.run("", "get", "--topic", "orders", "--id", "a b")
			if !json.Valid([]byte(r.stdout)) || strings.Count(r.stdout, "\n") < 5 {
				t.Errorf("get printed %s", r.stdout)
			}
		}
		r := c.run("", append(strings.Fields(test.args), "--topic", "orders", "--id", "a b")...)
		if r.code != 0 || r.stdout != test.want+"\n" || r.stderr != "" {
			t.Errorf("%s: exit code %d\n%s%s", test.args, r.code, r.stdout, r.stderr)
		}
	}
}

// TestInIsRelativeToNow: --in counts from now, and the past means now.
func TestInIsRelativeToNow(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for in, want := range map[string]time.Duration{"2d": 48 * time.Hour, "1h30m": 90 * time.Minute,
		"500ms": 500 * time.Millisecond, "-30s": 0} {
		before := c.now()
		due := c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", in)
		after := c.now()
		at, err := time.Parse(time.RFC3339, due["due"].(string))
		if now := at.Add(-want).UnixMilli(); err != nil || now < before || now > after {
			t.Errorf("--in %s: due %v, counted from %d, want from between %d and %d: %v", in, due["due"], now, before, after,
				err)
		}
	}
}

// TestPastDueIsSaid: a task that was due more than a minute ago is due now, and a message
// says so. The exit code and the output stay the same.
func TestPastDueIsSaid(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	hours := fmt.Sprint(c.now() - (3*time.Hour + time.Minute).Milliseconds())
	for _, test := range []struct{ args, said string }{
		{"schedule --in -1m", ""}, // first, because reschedule needs a task
		{"schedule --at " + hours, "3h ago"},
		{"reschedule --at " + hours, "3h ago"},
		{"schedule --in -2h", "2h ago"},
		{"schedule --in -90m", "90m ago"},
		{"reschedule --in -61s", "1m ago"},
		{"reschedule --in -60s", ""},
		{"schedule --in -3d", "3d ago"},
		{"schedule --in 1m", ""},
	} {
		if test.said != "" {
			test.said = "producer: due " + test.said + ": delivered at once\n"
		}
		before := c.now()
		r := c.run("", append(strings.Fields(test.args), "--topic", "orders", "--id", "o-1", "-o", "json")...)
		if r.code != 0 || r.stderr != test.said {
			t.Errorf("%s: exit code %d, said %q, want %q", test.args, r.code, r.stderr, test.said)
			continue
		}
		if due, err := decodeOne(t, r.stdout)["due_ms"].(json.Number).Int64(); err != nil || due < before {
			t.Errorf("%s: due %d, before now, which is %d: %v", test.args, due, before, err)
		}
	}
}

// TestPayloadSources: text, a file and standard input arrive byte for byte.
func TestPayloadSources(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	bytes := "\x00\xff\xfe\n"
	file := writeFile(t, "payload", bytes)
	for name, source := range map[string][]string{"file": {"--payload-file", file}, "input": {"--payload-file", "-"}} {
		r := c.run(bytes, append(source, "schedule", "--topic", "orders", "--id", name, "--in", "1h")...)
		if r.code != 0 {
			t.Fatalf("%s: %s", name, r.stderr)
		}
		got := c.must("get", "--topic", "orders", "--id", name)
		if got["payload_base64"] != base64.StdEncoding.EncodeToString([]byte(bytes)) || got["payload"] != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	c.must("schedule", "--topic", "orders", "--id", "none", "--in", "1h")
	if got := c.must("get", "--topic", "orders", "--id", "none"); got["payload"] != "" ||
		got["content_type"] != "application/octet-stream" {
		t.Errorf("no payload: %v", got)
	}
}

// TestOptions: the options of a message are stored, shown if they are set, and kept by
// reschedule. Values out of range are refused.
func TestOptions(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	named := []string{"--topic", "orders", "--id", "o-1", "--in", "1h"}
	options := strings.Fields("--routing-key express --priority 9 --expiration 1d --correlation-id c-1 --reply-to answers")
	c.must(append(append(named, "schedule"), options...)...)
	c.must(append(named, "reschedule")...)
	got := c.must("get", "--topic", "orders", "--id", "o-1")
	for key, want := range map[string]any{
		"routing_key": "express", "priority": json.Number("9"), "expiration": "24h0m0s", "correlation_id": "c-1",
		"reply_to": "answers",
	} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	if headers, ok := got["headers"].(map[string]any); !ok || len(headers) > 0 {
		t.Errorf("headers %v", got["headers"])
	}
	c.must(append(named, "schedule")...)
	if got := c.must("get", "--topic", "orders", "--id", "o-1"); got["routing_key"] != nil || got["priority"] != nil ||
		got["expiration"] != nil {
		t.Errorf("without options: %v", got)
	}
	for option, want := range map[string]string{
		"--priority=256": "invalid argument \"256\"", "--expiration=soon": "want a duration",
		"--expiration=0":   "must be 1ms or more",
		"--expiration=50d": "expiration: must be 1ms to", "--reply-to=amq.rabbitmq.reply-to": "reply_to: must be",
	} {
		if r := c.run("", append(named, "schedule", option)...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, said %q, want %q", option, r.code, r.stderr, want)
		}
	}
}

// TestReplaceAndIfAbsent: schedule replaces a pending task. With --if-absent it keeps the
// task and ends with 4.
func TestReplaceAndIfAbsent(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", "1h", "--payload", "first", "--if-absent")
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", "1h", "--payload", "second")
	r := c.run("", "schedule", "--topic", "orders", "--id", "o-1", "--in", "1h", "--payload", "third", "--if-absent")
	wantError(t, r, 4, "exists already")
	if got := c.payload("o-1"); got != "second" || c.stored() != 1 {
		t.Errorf("payload %q of %d tasks", got, c.stored())
	}
}

func TestNoSuchTask(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for _, verb := range [][]string{{"cancel"}, {"reschedule", "--in", "1h"}, {"get"}} {
		r := c.run("", append(verb, "--topic", "orders", "--id", "o-1", "-o", "json")...)
		wantError(t, r, 3, "no such task")
		if r.stdout != "" || c.stored() != 0 {
			t.Errorf("%v: printed %q, %d tasks are stored", verb, r.stdout, c.stored())
		}
	}
}

// TestGetStates: get shows the states leased and parked.
func TestGetStates(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", "0s")
	lease := func() shard.Claimed {
		at := shard.Place("o-1", testShards)
		claim := shard.Claim{Claimant: t.Name(), Request: fmt.Sprint(time.Now().UnixNano()), Limit: 1, Lease: time.Hour}
		var batch shard.Batch
		check.Until(t, "a claim of the task", func() bool {
			var err error
			if batch, err = c.orders.Shard(at).Claim(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			return len(batch.Tasks) == 1
		})
		return batch.Tasks[0]
	}
	claimed := lease()
	if got := c.must("get", "--topic", "orders", "--id", "o-1"); got["state"] != "leased" || got["next_attempt"] == nil ||
		got["attempts"] != json.Number("0") {
		t.Errorf("leased: %v", got)
	}
	release := shard.Release{Lease: shard.Lease{ID: "o-1", Token: claimed.Token}, Park: true, Attempted: true,
		Reason: "NO_ROUTE"}
	if n, err := c.orders.Shard(claimed.Shard).Release(t.Context(), []shard.Release{release}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	got := c.must("get", "--topic", "orders", "--id", "o-1")
	if got["state"] != "parked" || got["reason"] != "NO_ROUTE" || got["attempts"] != json.Number("1") ||
		got["next_attempt"] != nil {
		t.Errorf("parked: %v", got)
	}
}

// TestConfigurationSources: flags win over the environment, which wins over the file.
func TestConfigurationSources(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", "1h")
	const nowhere = "127.0.0.1:1"
	for name, row := range map[string]struct {
		addr, prefix string // in the file
		env, flags   []string
		code         int
	}{
		"file": {addr: c.addr, prefix: c.prefix},
		"environment over file": {addr: nowhere, prefix: "other",
			env: []string{"DUEFLEET_REDIS_ADDRS=" + c.addr, "DUEFLEET_REDIS_PREFIX=" + c.prefix}},
		"flags over both": {addr: nowhere, prefix: "other", env: []string{"DUEFLEET_REDIS_ADDRS=" + nowhere},
			flags: []string{"--redis-addr", c.addr, "--redis-prefix", c.prefix}},
		"another prefix": {addr: c.addr, prefix: "other", code: 1},
	} {
		file := writeFile(t, "config.yaml", fmt.Sprintf("redis:\n  addrs: [%s]\n  prefix: %s\n", row.addr, row.prefix))
		args := append(row.flags, "get", "--topic", "orders", "--id", "o-1", "--config", file)
		if code := finish(t, command(t, row.env, args...)).code; code != row.code {
			t.Errorf("%s: exit code %d, want %d", name, code, row.code)
		}
	}
}

// TestMaxPayload: flag, environment and file can raise and lower the limit.
func TestMaxPayload(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	large := string(bytes.Repeat([]byte("x"), 300<<10))
	file := writeFile(t, "config.yaml", "max_payload: 7\n")
	for name, row := range map[string]struct{ payload, flags, refused string }{
		"default limit":  {large, "", "payload: must be at most 262144 bytes"},
		"raised limit":   {large, "--max-payload 400000", ""},
		"lowered limit":  {"123456", "--max-payload 5", "payload: must be at most 5 bytes"},
		"limit of file":  {"12345678", "--config " + file, "payload: must be at most 7 bytes"},
		"flag over file": {"12345678", "--max-payload 8 --config " + file, ""},
	} {
		args := []string{"schedule", "--topic", "orders", "--id", name, "--in", "1h", "--payload-file", "-"}
		r := c.run(row.payload, append(args, strings.Fields(row.flags)...)...)
		if row.refused != "" {
			wantError(t, r, 1, row.refused)
		} else if r.code != 0 {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.stderr)
		}
	}
	if got := c.payload("raised limit"); got != large {
		t.Errorf("payload of %d bytes came back as %d", len(large), len(got))
	}
}

// TestScheduleInterrupted: Ctrl-C ends a schedule that reads its payload from an open
// standard input, and nothing is stored.
func TestScheduleInterrupted(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	cmd := command(t, nil, c.args("schedule", "--topic", "orders", "--id", "o-1", "--in", "1h", "--payload-file", "-")...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	end := begin(t, cmd)
	// This is more than a pipe holds, so after the write the command must be reading.
	if _, err := input.Write(bytes.Repeat([]byte("x"), 200<<10)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	wantError(t, end(func() int { return 0 }), 1, "read payload: interrupted")
	if n := c.stored(); n != 0 {
		t.Errorf("%d tasks are stored", n)
	}
}

// TestGetShowsAMessageOfTheIntake: routing key, properties, and headers with their types.
func TestGetShowsAMessageOfTheIntake(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	body, err := amqpmsg.Encode(amqpmsg.Message{
		RoutingKey: "order.eu", Properties: amqpmsg.Properties{Type: "order"}, Headers: map[string]any{"n": int16(7)},
		Body: []byte("payload"),
	})
	if err != nil {
		t.Fatal(err)
	}
	entry := shard.Entry{ID: "o-1", When: task.In(time.Hour), Body: body}
	orders := router.New(fixture.At(t, c.addr, c.prefix).Store).Topic("orders")
	if r := orders.Schedule(t.Context(), []shard.Entry{entry})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	const want = `"amqp":{"routing_key":"order.eu","properties":{"type":"order"},"headers":{"n":{"type":"int16","value":7}}}`
	if r := c.run("", "get", "orders", "--id", "o-1", "-o", "json"); r.code != 0 ||
		!strings.Contains(r.stdout, want) || !strings.Contains(r.stdout, `"payload":"payload"`) {
		t.Errorf("%+v", r)
	}
	if r := c.run("", "get", "orders", "--id", "o-1"); !strings.Contains(r.stdout, `"routing_key": "order.eu"`) {
		t.Errorf("%+v", r)
	}
	c.must("schedule", "orders", "--id", "o-1", "--in", "1h")
	if got := c.must("get", "orders", "--id", "o-1"); got["amqp"] != nil {
		t.Errorf("a library's task has %v", got["amqp"])
	}
}

// TestWhatHappened: get --history prints events of a task that isn't stored any more, as a
// table and as JSON. Without any it exits with 3.
func TestWhatHappened(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	if err := c.orders.KeepEvents(t.Context(), fixture.Placement(t, c.orders), time.Hour); err != nil {
		t.Fatal(err)
	}
	c.must("schedule", "orders", "--id", "o-1", "--at", "2099-12-01T10:00:00Z")
	c.must("cancel", "orders", "--id", "o-1")
	events, _ := c.must("get", "orders", "--id", "o-1", "--history")["events"].([]any)
	if len(events) != 2 {
		t.Fatalf("events: %v", events)
	}
	first, _ := events[0].(map[string]any)
	last, _ := events[1].(map[string]any)
	if first["kind"] != "scheduled" || first["due"] != "2099-12-01T10:00:00.000Z" || last["kind"] != "cancelled" ||
		last["due"] != nil || last["reason"] != nil {
		t.Errorf("events: %v", events)
	}
	r := c.run("", "get", "orders", "--id", "o-1", "--history", "-o", "text")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[2], "  cancelled") {
		t.Errorf("table:\n%s", r.stdout)
	}
	r = c.run("", "get", "orders", "--id", "o-2", "--history")
	if r.code != 3 || !strings.Contains(r.stderr, "setting history") {
		t.Errorf("without events: %+v", r)
	}
}

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
