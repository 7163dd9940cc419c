package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// client returns a producer for the corner.
func (c *sandbox) client() *producer.Client {
	c.t.Helper()
	client, err := producer.New(producer.Config{Redis: c.rdb, Prefix: c.prefix})
	check.OK(c.t, err)
	return client
}

// tasks returns the tasks of a topic by ID, without what load can't set.
func (c *sandbox) tasks(topic string) map[string]task.Task {
	c.t.Helper()
	tasks := map[string]task.Task{}
	for s, err := range c.client().List(c.t.Context(), topic, producer.Filter{}) {
		check.OK(c.t, err)
		s.Topic, s.Scheduled = "", time.Time{}
		tasks[s.ID] = s.Task
	}
	return tasks
}

// wantTasks checks that a topic has the given tasks.
func (c *sandbox) wantTasks(topic string, want map[string]task.Task) {
	c.t.Helper()
	got := c.tasks(topic)
	for id := range want {
		if g, w := fmt.Sprintf("%q", fmt.Sprint(got[id])), fmt.Sprintf("%q", fmt.Sprint(want[id])); g != w {
			c.t.Errorf("%s %q:\n got %s\nwant %s", topic, id, g, w)
		}
	}
	if len(got) != len(want) {
		c.t.Errorf("%s has %d tasks, want %d", topic, len(got), len(want))
	}
}

// drawn stores tasks with all that a request can have in the topic orders.
func (c *sandbox) drawn() {
	c.t.Helper()
	n, client, texts := 0, c.client(), rapid.StringN(0, 30, 100)
	rapid.Check(c.t, func(t *rapid.T) {
		n++
		payload := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte {
			return []byte(s)
		})).Draw(t, "payload")
		in := time.Duration(rapid.Int64Range(0, 99*365*24*3600*1000).Draw(t, "in")) * time.Millisecond
		_, err := client.Schedule(c.t.Context(), producer.Request{
			Topic: "orders", ID: fmt.Sprint(texts.Draw(t, "id"), n),
			When:    producer.In(time.Hour + in),
			Payload: payload, ContentType: texts.Draw(t, "content type"),
			Headers: rapid.MapOfN(rapid.StringMatching(`[a-z"\n☃ ]{1,9}|traceparent`), rapid.String(), 0, 4).Draw(t, "headers"),
			Options: task.Options{
				RoutingKey: texts.Draw(t, "key"), Priority: rapid.Uint8().Draw(t, "priority"),
				Expiration:    time.Duration(rapid.Int64Range(0, 1<<32-1).Draw(t, "expiration")) * time.Millisecond,
				CorrelationID: texts.Draw(t, "correlation"), ReplyTo: texts.Draw(t, "reply to"),
			},
		})
		check.OK(t, err)
	})
}

// TestExportThenLoad: load makes of an export the same tasks, in another installation, and
// under another name.
func TestExportThenLoad(t *testing.T) {
	t.Parallel()
	here, there := newSandbox(t), newSandbox(t)
	here.drawn()
	want := here.tasks("orders")
	file := filepath.Join(t.TempDir(), "orders.ndjson")
	sum := here.must("export", "orders", "--file", file)
	n := len(want)
	wantCounts(t, sum, fmt.Sprintf("topics=1 tasks=%d waiting=%d retrying=0 leased=0 parked=0 failed=0", n, n))
	there.addTopic("bills")
	for _, topic := range []string{"orders", "bills"} {
		wantCounts(t, there.must("load", topic, "--file", file), fmt.Sprintf("scheduled=%d bad=0", len(want)))
		there.wantTasks(topic, want)
	}
	here.wantTasks("orders", want)
}

// bodies returns the records of the topic orders by ID, without the head in which times are.
func (c *sandbox) bodies() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for at := range fixture.Placement(c.t, c.orders).Scanned() {
		records, err := c.rdb.HGetAll(c.t.Context(), fmt.Sprintf("%s:task:{orders:%d}", c.prefix, at)).Result()
		check.OK(c.t, err)
		for id, record := range records {
			const head = 19 // format, due, scheduled, op
			all[id] = record[:1] + record[head:]
		}
	}
	return all
}

// TestExportOfAnIntake: tasks that came through an intake have the same records after export
// and load, byte for byte. The same lines go through pipe.
func TestExportOfAnIntake(t *testing.T) {
	t.Parallel()
	here, there := newSandbox(t), newSandbox(t)
	for id, m := range map[string]amqpmsg.Message{
		"least": {Body: []byte("x")},
		"most": {
			RoutingKey: "order.eu", Body: []byte{0, 255},
			Properties: amqpmsg.Properties{ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 9,
				CorrelationID: "c", ReplyTo: "\xff", Expiration: "60000", MessageID: "m", Timestamp: time.Unix(1796119200, 0),
				Type: "t", UserID: "guest", AppID: "app"},
			Headers: map[string]any{
				"array": []any{int32(1), "x", nil, map[string]any{"k": true}}, "\xff": "\xfe", "bytes": []byte{1},
				"NaN": math.Float32frombits(0x7f800001), "far": int64(math.MinInt64), "amount": task.Decimal{Scale: 2, Value: 314},
			},
		},
		"at once": {Headers: map[string]any{amqpmsg.HeaderHops: int64(1), amqpmsg.HeaderTaken: int64(1796119200000)}},
	} {
		body, err := amqpmsg.Encode(m)
		check.OK(t, err)
		fixture.Store(t, here.orders, fixture.Entries(producer.In(time.Hour), body, id)...)
	}
	here.must("schedule", "orders", "--id", "library", "--in", "1h", "--header", "k=v")
	file := filepath.Join(t.TempDir(), "orders.ndjson")
	wantCounts(t, here.must("export", "orders", "--file", file), "tasks=4 failed=0")
	want := fmt.Sprintf("%q", here.bodies())
	wantCounts(t, there.must("load", "orders", "--file", file), "scheduled=4 bad=0")
	check.Equal(t, "records after load", fmt.Sprintf("%q", there.bodies()), want)

	for id := range there.bodies() {
		there.must("cancel", "orders", "--id", id)
	}
	text, err := os.ReadFile(file)
	check.OK(t, err)
	requests := strings.ReplaceAll(string(text), `{"id"`, `{"verb":"schedule","id"`)
	if r, answers := there.pipe(strings.NewReader(requests), "orders"); r.code != 0 || len(answers) != 4 {
		t.Fatalf("exit code %d, %d answers: %s", r.code, len(answers), r.stderr)
	}
	check.Equal(t, "records after pipe", fmt.Sprintf("%q", there.bodies()), want)
}

// TestExportSeveralTopics: the lines of several topics, or of all, have the topic. So load
// puts each task where it was.
func TestExportSeveralTopics(t *testing.T) {
	t.Parallel()
	here := newSandbox(t)
	for _, topic := range []string{"mails", "bills", "-"} {
		here.addTopic(topic)
		here.must("schedule", "--topic", topic, "--id", "1", "--in", "1h", "--payload", topic)
	}
	for _, row := range []struct {
		args   []string
		topics string
		load   []string
	}{
		{[]string{"export", "--all"}, "- bills mails", []string{"load"}},
		{[]string{"export", "--all", "-"}, "- bills mails", []string{"load"}},
		{[]string{"export", "mails", "bills", "-"}, "bills mails", []string{"load"}},
		{[]string{"export", "mails", "--topic", "-"}, "- mails", []string{"load"}},
		{[]string{"export", "--topic", "-"}, "-", []string{"load", "--topic", "-"}},
	} {
		there := newSandbox(t)
		for _, topic := range []string{"mails", "bills", "-"} {
			there.addTopic(topic)
		}
		r := here.run("", row.args...)
		if r.code != 0 || !strings.Contains(r.stderr, " waiting, 0 retrying, 0 leased, 0 parked; 0 failed, in ") {
			t.Fatalf("%q: exit code %d: %s", row.args, r.code, r.stderr)
		}
		if loaded := there.run(r.stdout, row.load...); loaded.code != 0 {
			t.Errorf("%q: exit code %d: %s", row.args, loaded.code, loaded.stderr)
		}
		var got []string
		for _, topic := range []string{"-", "bills", "mails"} {
			if payload := there.tasks(topic)["1"].Payload; string(payload) == topic {
				got = append(got, topic)
			}
		}
		check.Equal(t, fmt.Sprintf("%q", row.args), strings.Join(got, " "), row.topics)
	}
}

// inEveryState stores a task of each state in the topic orders, with the state as its ID.
func (c *sandbox) inEveryState() {
	c.t.Helper()
	for _, id := range []string{"leased", "parked", "retrying"} {
		c.must("schedule", "orders", "--id", id, "--in", "0s", "--payload", id)
	}
	c.must("schedule", "orders", "--id", "waiting", "--in", "1h")
	p := fixture.Placement(c.t, c.orders)
	for at := range p.Scanned() {
		b, err := c.orders.Shard(at).Claim(c.t.Context(), shard.Claim{
			Claimant: "w", Request: string(shard.NewOp()), Limit: shard.MaxBatch, Lease: time.Hour,
		})
		check.OK(c.t, err)
		for _, claimed := range b.Tasks {
			if claimed.ID == "leased" {
				continue
			}
			_, err := c.orders.Shard(at).Release(c.t.Context(), []shard.Release{{
				Lease: shard.Lease{ID: claimed.ID, Token: claimed.Token}, Park: claimed.ID == "parked",
				Delay: 2 * time.Hour, Attempted: true, Reason: "no queue",
			}})
			check.OK(c.t, err)
		}
	}
}

// TestExportStates: an export has the tasks of all states unless flags select some, and the
// summary counts each state.
func TestExportStates(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.inEveryState()
	for flags, want := range map[string]string{
		"":                                     "leased parked retrying waiting",
		"--state=waiting":                      "waiting",
		"--state=retrying":                     "retrying",
		"--state=waiting,retrying":             "retrying waiting",
		"--state=parked --state=leased":        "leased parked",
		"--state=leased":                       "leased",
		"--state=parked":                       "parked",
		"--id-prefix=wai":                      "waiting",
		"--due-after=30m":                      "waiting",
		"--due-after=30m --state=waiting":      "waiting",
		"--due-before=30m":                     "leased parked retrying",
		"--due-before=30m --state=waiting":     "",
		"--due-before=30m --state=retrying":    "retrying",
		"--due-before=90m --state=waiting":     "waiting",
		"--due-before=30m --state=parked":      "parked",
		"--due-after=-1m --due-before=90m":     "leased parked retrying waiting",
		"--due-after=90m --state=retrying":     "",
		"--due-after=30m --state=leased":       "",
		"--due-before=-1h --id-prefix=waiting": "",
	} {
		r := c.run("", append([]string{"export", "orders", "-o", "json"}, strings.Fields(flags)...)...)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d: %s", flags, r.code, r.stderr)
		}
		var ids []string
		for line := range strings.Lines(r.stdout) {
			id, _ := decodeOne(t, line)["id"].(string)
			ids = append(ids, id)
		}
		slices.Sort(ids)
		check.Equal(t, flags, strings.Join(ids, " "), want)
		sum := decodeOne(t, r.stderr)
		wantCounts(t, sum, fmt.Sprintf("topics=1 tasks=%d failed=0 bytes=%d", len(ids), len(r.stdout)))
		for _, state := range exportStates() {
			n := 0
			if slices.Contains(ids, state) {
				n = 1
			}
			wantCounts(t, sum, fmt.Sprintf("%s=%d", state, n))
		}
	}
	r := c.run("", "export", "orders")
	for _, want := range []string{
		"4 tasks: 1 waiting, 1 retrying, 1 leased, 1 parked; 0 failed, in ",
		"; the leased ones are being delivered, and load delivers them again; load makes the parked ones due at once\n",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("want %q in %s", want, r.stderr)
		}
	}
}

// TestExportUnreadable: tasks that can't be written are reported, the others are written, and
// the exit code is 1.
func TestExportUnreadable(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "orders", "--id", "good", "--in", "1h")
	c.must("schedule", "orders", "--id", "cut", "--in", "1h")
	at := fixture.Placement(t, c.orders).New("cut")
	check.OK(t, c.rdb.HSet(t.Context(), fmt.Sprintf("%s:task:{orders:%d}", c.prefix, at), "cut", "\x14cut").Err())
	want := []string{
		`topic orders, ID "cut": record of 4 bytes is cut short`,
		"export orders: 1 of 2 tasks could not be written; all others are",
	}
	file, reasons := filepath.Join(t.TempDir(), "orders.ndjson"), filepath.Join(t.TempDir(), "reasons")
	for _, args := range [][]string{{"export", "orders"}, {"export", "orders", "--file", file, "--errors", reasons}} {
		r := c.run("", args...)
		lines := r.stdout
		if len(args) > 2 {
			text, err := os.ReadFile(file)
			check.OK(t, err)
			lines = string(text)
		}
		if got := decodeOne(t, lines)["id"]; r.code != 1 || got != "good" {
			t.Errorf("exit code %d, exported %v", r.code, got)
		}
		for _, text := range want {
			if !strings.Contains(r.stderr, "producer: "+text+"\n") {
				t.Errorf("want %s in\n%s", text, r.stderr)
			}
		}
	}
	text, err := os.ReadFile(reasons)
	check.OK(t, err)
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	check.Equal(t, "reasons", strings.Join(got, "\n"), want[0])
}

// names returns the names in a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check.OK(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestExportFile: the file is replaced when the export is complete. After a failure it is as
// before, and nothing else is left in its folder.
func TestExportFile(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	large := `{"id":"o-1","in":"1h","payload":"` + strings.Repeat("x", 200_000) + `"}`
	check.Equal(t, "exit code of load", c.run(large, "load", "orders").code, 0)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	check.OK(t, os.Symlink("file", link))
	r := c.run("", "export", "orders", "bills", "--file", file)
	wantError(t, c.run("", "export", "bills", "--file", file), 1, "export bills: stopped; "+file+" is not written: ")
	if r.code != 1 || !strings.Contains(r.stderr, "unknown topic bills") ||
		!strings.HasPrefix(r.stdout, "1 task: 1 waiting") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	check.Equal(t, "folder after failures", names(t, dir), "link")
	check.OK(t, os.WriteFile(file, []byte("old"), 0o640)) //nolint:gosec // the test is about the mode
	if r := c.run("", "export", "orders", "bills", "--file", file); r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	text, err := os.ReadFile(file)
	check.OK(t, err)
	check.Equal(t, "file after a failure", string(text), "old")
	c.must("export", "orders", "--file", link)
	text, err = os.ReadFile(file)
	check.OK(t, err)
	info, err := os.Lstat(link)
	check.OK(t, err)
	now, err := os.Stat(file)
	check.OK(t, err)
	if !bytes.HasPrefix(text, []byte(`{"id":"o-1",`)) || info.Mode()&os.ModeSymlink == 0 || now.Mode().Perm() != 0o640 {
		t.Errorf("file %.100q of mode %v, link of mode %v", text, now.Mode(), info.Mode())
	}
	fresh := filepath.Join(dir, "fresh")
	c.must("export", "orders", "--file", fresh)
	if now, err = os.Stat(fresh); err != nil || now.Mode().Perm() != 0o600 {
		t.Errorf("a new file has mode %v, %v", now.Mode(), err)
	}
	check.Equal(t, "folder at the end", names(t, dir), "file fresh link")
	wantError(t, c.run("", "export", "orders", "--file", dir), 1, "--file: open "+dir+": is a directory")
	wantError(t, c.run("", "export", "orders", "--file", filepath.Join(dir, "nowhere", "f")), 1, "--file: open ")
}

// TestExportToADevice: a device is written in place.
func TestExportToADevice(t *testing.T) {
	t.Parallel()
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("no device to write to that is full")
	}
	c := newSandbox(t)
	c.must("schedule", "orders", "--id", "o-1", "--in", "1h")
	r := c.run("", "export", "orders", "--file", full)
	if r.code != 1 || !strings.Contains(r.stderr, "write /dev/full: no space left on device") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if r := c.run("", "export", "orders", "--file", os.DevNull); r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is %v, %v", os.DevNull, info.Mode(), err)
	}
}

// TestExportWithoutRedis: one line says what to check.
func TestExportWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"orders", "--all"} {
		r := finish(t, command(t, nil, "export", what, "--redis-addr", "127.0.0.1:1"))
		if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "connection refused; check that Redis runs there") {
			t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	}
}

// TestExportInterrupted: Ctrl-C ends an export, and no part of its file is left.
func TestExportInterrupted(t *testing.T) {
	t.Parallel()
	c := sandboxAt(t, servertest.OwnRedis(t).Addr(), "p") // clients of a cluster pass by a proxy
	payload := strings.Repeat("x", 16<<10)
	c.load(lines(1000, func(i int) string { return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%s"}`, i, payload) }))
	slow := faults.Proxy(t, faults.Local, c.addr)
	faults.Toxic(t, slow, "slow", "bandwidth", "downstream", map[string]any{"rate": 2000}) // KB a second
	dir := t.TempDir()
	cmd := command(t, nil, "export", "orders", "--file", filepath.Join(dir, "file"), "--redis-addr", slow.Listen,
		"--redis-prefix", c.prefix)
	end := begin(t, cmd)
	check.Until(t, "the first lines", func() bool {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			return false
		}
		info, err := entries[0].Info()
		return err == nil && info.Size() > 0
	})
	check.Equal(t, "named too early", strings.HasPrefix(names(t, dir), "."), true)
	check.OK(t, cmd.Process.Signal(os.Interrupt))
	r := end(func() int { return 0 })
	if r.code != 1 || !strings.Contains(r.stderr, "is not written: ") || !strings.Contains(r.stderr, "; interrupted") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	check.Equal(t, "folder", names(t, dir), "")
}
