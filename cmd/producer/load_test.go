package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/test/check"
)

// load runs the verb with input and returns its summary as well.
func (c *sandbox) load(input io.Reader, args ...string) (result, map[string]any) {
	c.t.Helper()
	cmd := command(c.t, nil, c.args(append([]string{"load", "--topic", "orders", "-o", "json"}, args...)...)...)
	read := &counted{Reader: input}
	cmd.Stdin = read
	r := finishCounting(c.t, cmd, func() int { return int(read.bytes.Load()) + c.stored() })
	if pipe, ok := input.(io.Closer); ok {
		_ = pipe.Close() // a load that stopped leaves its writer blocked
	}
	return r, decodeOne(c.t, r.stdout)
}

// wantCounts checks a summary's counts, given as "key=number" words.
func wantCounts(t testing.TB, sum map[string]any, counts string) {
	t.Helper()
	for word := range strings.FieldsSeq(counts) {
		key, want, _ := strings.Cut(word, "=")
		if fmt.Sprint(sum[key]) != want {
			t.Errorf("%s: got %v, want %s", key, sum[key], want)
		}
	}
}

// TestLoadTakesPayloadsInJSON: load stores JSON payloads as the line has them, and so does
// pipe.
func TestLoadTakesPayloadsInJSON(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const object = `{ "order":1, "price":1.50, "name":"<\u00fc>" }`
	const line = `"id":"o-%d","in":"1h","payload":` + object + `}` + "\n"
	_, sum := c.load(strings.NewReader(fmt.Sprintf("{"+line, 1) + `{"content_type":"a/b",` + fmt.Sprintf(line, 2)))
	wantCounts(t, sum, "scheduled=2 bad=0")
	if r := c.run(fmt.Sprintf(`{"verb":"schedule",`+line, 3), "pipe", "--topic", "orders"); r.code != 0 {
		t.Errorf("pipe: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	for id, contentType := range map[string]string{"o-1": "application/json", "o-2": "a/b", "o-3": "application/json"} {
		got := c.must("get", "--topic", "orders", "--id", id)
		if got["payload"] != object || got["content_type"] != contentType {
			t.Errorf("%s: got %v of type %v", id, got["payload"], got["content_type"])
		}
	}
}

// TestLoadManyLines loads 100,000 tasks, each as its line says.
func TestLoadManyLines(t *testing.T) {
	t.Parallel()
	const n = 100_000
	c := newSandbox(t)
	payload := strings.Repeat("x", 150)
	r, sum := c.load(lines(n, func(i int) string {
		return fmt.Sprintf(`{"id":"o-%d","at":%d,"payload":"%s-%d","headers":{"n":"%d"}}`, i, 4099802400000+i, payload, i, i)
	}))
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	wantCounts(t, sum, fmt.Sprintf("lines=%d scheduled=%d existing=0 bad=0 unwritten=0 safe_line=%d", n, n, n))
	if rate, _ := sum["rate"].(json.Number).Float64(); rate < 1 {
		t.Errorf("rate %v over %v seconds", sum["rate"], sum["seconds"])
	}
	if got := c.stored(); got != n {
		t.Fatalf("%d tasks are stored", got)
	}
	for _, i := range []int{0, 1, 499, 500, 77_777, n - 1} {
		got := c.must("get", "--topic", "orders", "--id", fmt.Sprint("o-", i))
		wantCounts(t, got, fmt.Sprintf("due_ms=%d payload=%s-%d headers=map[n:%d]", 4099802400000+i, payload, i, i))
	}
	t.Logf("%s tasks a second, %d MiB at its peak", sum["rate"], r.peak>>20)
}

// TestLoadInBoundedMemory loads a stream of twice the memory budget. Other tests measure
// the memory.
func TestLoadInBoundedMemory(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	if r := c.loadMuch(2 * ndjson.MemoryBudget); r.code != 0 || c.stored() != muchIDs {
		t.Errorf("exit code %d, %d tasks are stored: %s", r.code, c.stored(), r.stderr)
	}
}

// muchIDs is how many tasks loadMuch leaves.
const muchIDs = 500

// loadMuch loads some bytes of payloads.
func (c *sandbox) loadMuch(bytes int) result {
	c.t.Helper()
	const size = 16 << 10
	n := bytes / size
	payload := strings.Repeat("x", size)
	r, sum := c.load(lines(n, func(i int) string {
		return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%s"}`, i%muchIDs, payload)
	}))
	wantCounts(c.t, sum, fmt.Sprintf("lines=%d scheduled=%d", n, n))
	return r
}

// TestLoadBadLines: each bad line is reported with its number and reason, and the good
// ones are written.
func TestLoadBadLines(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	bad := map[int]string{
		2: `{"id":"o-2","in":"1m"`,
		3: `{"id":"o-3","in":"1m","color":"red"}`,
		5: `{"id":"o-5","in":"1m","at":0}`,
		6: `{"id":"o-6","in":"1m","payload_base64":"%"}`,
		8: `{"id":"` + strings.Repeat("x", 256) + `","in":"1m"}`,
		9: `{"id":"o-9","in":"1m","payload":"` + strings.Repeat("x", 4<<20) + `"}`,
	}
	reasons := []string{
		"producer: line 2: malformed JSON",
		`producer: line 3: unknown field "color"`,
		"producer: line 5: in, at: only one of them may be given",
		"producer: line 6: payload_base64: illegal base64",
		"producer: line 8: id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes",
		"producer: line 9: line: must be at most ",
		"producer: load orders: 6 of 8 lines are bad",
	}
	r, sum := c.load(lines(10, func(i int) string {
		if line, there := bad[i+1]; there {
			return line
		}
		if i+1 == 4 || i+1 == 7 {
			return "  \r"
		}
		return fmt.Sprintf(`{"id":"o-%d","in":"1m"}`+"\r", i+1)
	}))
	if r.code != 1 || strings.Count(r.stderr, "\n") != len(reasons) {
		t.Errorf("exit code %d:\n%s", r.code, r.stderr)
	}
	for i, line := range strings.Split(strings.TrimSpace(r.stderr), "\n") {
		if i < len(reasons) && !strings.HasPrefix(line, reasons[i]) {
			t.Errorf("got  %s\nwant %s", line, reasons[i])
		}
	}
	wantCounts(t, sum, "lines=8 scheduled=2 bad=6 safe_line=10")
	if c.stored() != 2 {
		t.Errorf("%d tasks are stored", c.stored())
	}
}

// TestLoadStrict: what is before the bad line is written, nothing after it.
func TestLoadStrict(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	r, sum := c.load(lines(10_000, func(i int) string {
		if i+1 == 5001 {
			return "{}"
		}
		return fmt.Sprintf(`{"id":"o-%d","in":"1h"}`, i+1)
	}), "--strict")
	if r.code != 1 || !strings.HasPrefix(r.stderr, "producer: line 5001: in, at: one of them is needed\n") ||
		strings.Count(r.stderr, "\n") != 2 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	wantCounts(t, sum, "scheduled=5000 bad=1 unwritten=0")
	if got := c.stored(); got != 5000 {
		t.Errorf("%d tasks are stored", got)
	}
	c.must("get", "--topic", "orders", "--id", "o-5000")
	wantError(t, c.run("", "get", "--topic", "orders", "--id", "o-5002"), 3, "no such task")
}

// TestLoadTwice: load replaces tasks, and with --if-absent keeps existing ones.
func TestLoadTwice(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	tasks := func(n int, payload string) io.Reader {
		return lines(n, func(i int) string { return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%s"}`, i, payload) })
	}
	_, sum := c.load(tasks(1000, "first"))
	wantCounts(t, sum, "scheduled=1000 existing=0")
	_, sum = c.load(tasks(1000, "second"))
	wantCounts(t, sum, "scheduled=1000 existing=0")
	r, sum := c.load(tasks(1500, "third"), "--if-absent")
	wantCounts(t, sum, "lines=1500 scheduled=500 existing=1000 bad=0")
	if r.code != 0 || c.payload("o-7") != "second" || c.payload("o-1007") != "third" {
		t.Errorf("exit code %d, payloads %s and %s", r.code, c.payload("o-7"), c.payload("o-1007"))
	}
}

// TestLoadSameIDs: the last of several lines for one ID wins.
func TestLoadSameIDs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const n, ids = 3000, 7
	_, sum := c.load(lines(n, func(i int) string {
		return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%d"}`, i%ids, i)
	}), "--batch", "5")
	wantCounts(t, sum, fmt.Sprintf("scheduled=%d", n))
	for i := n - ids; i < n; i++ {
		if got := c.payload(fmt.Sprint("o-", i%ids)); got != strconv.Itoa(i) {
			t.Errorf("o-%d: line %s stayed, want %d", i%ids, got, i)
		}
	}
}

// TestLoadFile: a file is read like a pipe, and the summary is for people.
func TestLoadFile(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	file := writeFile(t, "tasks.ndjson", oneTask+"\n"+strings.TrimSpace(strings.ReplaceAll(oneTask, "o-1", "o-2")))
	dir := filepath.Dir(file)
	r := c.run("", "load", "--topic", "orders", "--file", file)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "2 lines: 2 scheduled, 0 existing, 0 bad in ") || r.stderr != "" {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	wantError(t, c.run("", "load", "--topic", "orders", "--file", file+"x"), 1, "no such file")
	wantError(t, c.run("", "load", "--topic", "orders", "--file", dir), 1,
		"load orders: stopped; nothing is in: read line 1: read "+dir+": is a directory")
	if c.stored() != 2 {
		t.Errorf("%d tasks are stored", c.stored())
	}
}

// TestLoadPastDue: tasks that were due more than a minute ago are counted, except existing
// ones. They are no failure.
func TestLoadPastDue(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	input := `{"id":"o-1","at":31536000000}
{"id":"o-2","in":"-2h"}
{"id":"o-3","in":"-1m"}
{"id":"o-4","in":"1h"}
`
	r, sum := c.load(strings.NewReader(input))
	wantCounts(t, sum, "lines=4 scheduled=4 bad=0 past_due=2")
	if r.code != 0 || r.stderr != "" || !strings.HasSuffix(r.stdout, `,"past_due":2}`+"\n") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	again := c.run(input+`{"id":"o-5","in":"-2h"}`, "load", "--topic", "orders", "--if-absent")
	if again.code != 0 || !strings.HasSuffix(again.stdout, "/s; 1 due in the past: delivered at once\n") {
		t.Errorf("exit code %d: %s%s", again.code, again.stdout, again.stderr)
	}
}

// TestLoadPipe: a line is written even if more may follow. The test sends the next line
// when the previous one is stored.
func TestLoadPipe(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	p := c.start("load")
	for i := range 20 {
		fmt.Fprintf(p.input, `{"id":"o-%d","in":"1h"}`+"\n", i)
		check.Until(t, fmt.Sprintf("line %d", i+1), func() bool { return c.stored() == i+1 })
	}
	p.input.Close()
	if r, sum := p.wait(t); r.code != 0 || fmt.Sprint(sum["scheduled"]) != "20" {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestLoadSeveralTopics: without TOPIC each line names its topic. A line without one, or with
// one that nobody serves, is bad, and the others go in.
func TestLoadSeveralTopics(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.addTopic("mails")
	input := `{"topic":"orders","id":"1","in":"1h","payload":"order"}
{"topic":"mails","id":"1","in":"1h","payload":"mail"}
{"id":"2","in":"1h"}
{"topic":"or ders","id":"2","in":"1h"}
{"topic":null,"id":"2","in":"1h"}
{"topic":"bills","id":"2","in":"1h"}
{"topic":"mails","id":"2","in":"1h"}
`
	r := c.run(input, "load", "-o", "json", "-")
	wantCounts(t, decodeOne(t, r.stdout), "lines=7 scheduled=3 existing=0 bad=4 unwritten=0 safe_line=7")
	want := []string{
		"producer: line 3: topic: is needed, here or with --topic",
		"producer: line 4: topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 7 bytes",
		"producer: line 5: topic: want a string, got null",
		"producer: line 6: unknown topic bills",
		"producer: load: 4 of 7 lines are bad and were not written; fix them and load them again",
	}
	got := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if r.code != 1 || len(got) != len(want) {
		t.Fatalf("exit code %d:\n%s", r.code, r.stderr)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
	for topic, payload := range map[string]string{"orders": "order", "mails": "mail"} {
		if got := c.must("get", topic, "--id", "1")["payload"]; got != payload {
			t.Errorf("%s: payload %v", topic, got)
		}
	}
}

// TestLoadStrictSeveralTopics: with --strict a line of an unknown topic stops the load.
func TestLoadStrictSeveralTopics(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	input := `{"topic":"orders","id":"1","in":"1h"}
{"topic":"bills","id":"1","in":"1h"}
`
	r := c.run(input, "load", "--strict")
	if r.code != 1 || c.stored() != 1 || !strings.Contains(r.stderr, "line 2: unknown topic bills") ||
		!strings.Contains(r.stderr, "load: stopped at the bad line") {
		t.Errorf("exit code %d, %d tasks are stored: %s", r.code, c.stored(), r.stderr)
	}
}

// TestLoadRefusesAnotherTopic: with TOPIC, a line that names another topic is bad.
func TestLoadRefusesAnotherTopic(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.addTopic("mails")
	input := `{"topic":"orders","id":"1","in":"1h"}
{"topic":"mails","id":"2","in":"1h"}
{"topic":"","id":"3","in":"1h"}
{"id":"4","in":"1h"}
`
	r, sum := c.load(strings.NewReader(input))
	wantCounts(t, sum, "lines=4 scheduled=2 bad=2")
	for _, want := range []string{
		`line 2: topic: must be orders, as on the command line, or absent; got "mails"`,
		`line 3: topic: must be orders, as on the command line, or absent; got ""`,
	} {
		if r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("exit code %d, want %s in\n%s", r.code, want, r.stderr)
		}
	}
	wantError(t, c.run("", "get", "mails", "--id", "2"), 3, "")
}

// TestLoadDash: a dash is standard input.
func TestLoadDash(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	r, sum := c.load(strings.NewReader(oneTask), "-")
	wantCounts(t, sum, "lines=1 scheduled=1")
	if r.code != 0 || c.stored() != 1 {
		t.Errorf("exit code %d, %d tasks are stored: %s", r.code, c.stored(), r.stderr)
	}
}

// TestLoadManyBadLines: the first ten of many bad lines are shown, and the number of the
// others. The file of --errors holds all of them.
func TestLoadManyBadLines(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const n, bad = 3000, 2000
	tasks := func() io.Reader {
		return lines(n, func(i int) string {
			if i%3 > 0 {
				return fmt.Sprintf(`{"id":"o-%d","due":"soon"}`, i)
			}
			return fmt.Sprintf(`{"id":"o-%d","in":"1h"}`, i)
		})
	}
	all := writeFile(t, "bad.txt", "what was there before\n")
	for _, run := range []struct {
		args []string
		more string
	}{
		{nil, "producer: 1990 more bad lines are not shown; --errors FILE takes them all"},
		{[]string{"--errors", all}, "producer: 1990 more bad lines are not shown; all are in " + all},
	} {
		r, sum := c.load(tasks(), run.args...)
		wantCounts(t, sum, fmt.Sprintf("lines=%d scheduled=%d bad=%d", n, n-bad, bad))
		shown := strings.Split(strings.TrimSpace(r.stderr), "\n")
		if r.code != 1 || len(shown) != 12 {
			t.Fatalf("exit code %d, %d lines, want 1 and 12; they begin with\n%.3000s", r.code, len(shown), r.stderr)
		}
		if !strings.HasPrefix(shown[0], `producer: line 2: unknown field "due"`) ||
			!strings.HasPrefix(shown[9], "producer: line 15: ") {
			t.Errorf("the first is %s\nthe tenth %s", shown[0], shown[9])
		}
		if shown[10] != run.more || !strings.HasPrefix(shown[11], "producer: load orders: 2000 of 3000 lines are bad") {
			t.Errorf("the last are %s\n%s", shown[10], shown[11])
		}
	}
	text, err := os.ReadFile(all)
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(told) != bad || !strings.HasPrefix(told[0], `line 2: unknown field "due"`) ||
		!strings.HasPrefix(told[bad-1], "line 3000: ") {
		t.Errorf("%s has %d lines, the first %s, the last %s", all, len(told), told[0], told[len(told)-1])
	}
}

// TestLoadBadLinesNotWritten: if the file of --errors can't be created, the load doesn't
// begin. If it can't be written, the load ends with an error.
func TestLoadBadLinesNotWritten(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	r := c.run(oneTask, "load", "--topic", "orders", "--errors", filepath.Join(t.TempDir(), "nowhere", "bad.txt"))
	wantError(t, r, 1, "--errors: open ")
	if r.stdout != "" || c.stored() != 0 {
		t.Errorf("printed %q, %d tasks are stored", r.stdout, c.stored())
	}
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("no device to write to that is full")
	}
	r = c.run(oneTask+"{}\n", "load", "--topic", "orders", "--errors", full)
	if r.code != 1 || !strings.Contains(r.stderr,
		"--errors: not all bad lines are written: write /dev/full: no space left on device") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if !strings.Contains(r.stdout, "2 lines: 1 scheduled, 0 existing, 1 bad") || c.stored() != 1 {
		t.Errorf("printed %q, %d tasks are stored", r.stdout, c.stored())
	}
}
