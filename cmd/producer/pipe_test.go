package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// pipe runs the verb over lines and returns its answers.
func (c *sandbox) pipe(input io.Reader, args ...string) (result, []map[string]any) {
	c.t.Helper()
	cmd := command(c.t, nil, c.args(append([]string{"pipe"}, args...)...)...)
	read := &counted{Reader: input}
	cmd.Stdin = read
	r := finishCounting(c.t, cmd, func() int { return int(read.bytes.Load()) })
	var answers []map[string]any
	for line := range strings.Lines(r.stdout) {
		answers = append(answers, decodeOne(c.t, line))
	}
	return r, answers
}

// without returns an answer as JSON, without the fields that verbs don't print.
func without(answer map[string]any, fields ...string) string {
	rest := map[string]any{}
	for k, v := range answer {
		rest[k] = v
	}
	for _, f := range fields {
		delete(rest, f)
	}
	text, _ := json.Marshal(rest) // it was decoded from JSON
	return string(text)
}

// TestPipeAnswersAsTheVerbsDo: pipe returns the same results, errors and codes as the
// verbs for the same task in the same state.
func TestPipeAnswersAsTheVerbsDo(t *testing.T) {
	t.Parallel()
	name := []string{"--topic", "orders", "--id", "o-1"}
	steps := []struct {
		line, args string
	}{
		{`"verb":"cancel"`, "cancel"},
		{`"verb":"get"`, "get"},
		{`"verb":"reschedule","in":"1h"`, "reschedule --in 1h"},
		{
			`"verb":"schedule","at":4099802400250,"payload":"<ü>","headers":{"k":"v"},"content_type":"text/plain"`,
			"schedule --at 4099802400250 --payload <ü> --header k=v --content-type text/plain",
		},
		{`"verb":"schedule","at":4099802400250,"if_absent":true`, "schedule --at 4099802400250 --if-absent"},
		{`"verb":"schedule","at":4099802400250,"if_present":true`, "schedule --at 4099802400250 --if-present"},
		{`"verb":"get"`, "get"},
		{`"verb":"reschedule","at":"2099-12-01T10:00:00.999Z"`, "reschedule --at 2099-12-01T10:00:00.999Z"},
		{`"verb":"get"`, "get"},
		{`"verb":"schedule","at":4099802400250,"if_absent":false,"payload_base64":"AP8="`, ""},
		{`"verb":"get"`, ""},
		{`"verb":"schedule","at":9999999999999`, "schedule --at 9999999999999"},
		{`"verb":"schedule","in":"1h","headers":{"x-duefleet-due":"1"}`, "schedule --in 1h --header x-duefleet-due=1"},
		{`"verb":"cancel"`, "cancel"},
		{`"verb":"cancel"`, "cancel"},
		{`"verb":"get","topic":"mails"`, "get --topic mails"},
		{`"verb":"get","topic":"a b"`, "get --topic a~b"},
	}
	one, other := newSandbox(t), newSandbox(t)
	var input strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&input, `{"id":"o-1",%s}`+"\n", s.line)
	}
	r, answers := one.pipe(strings.NewReader(input.String()), "--topic", "orders")
	if r.code != 0 || r.stderr != "" || len(answers) != len(steps) {
		t.Fatalf("exit code %d, %d answers to %d requests: %s%s", r.code, len(answers), len(steps), r.stdout, r.stderr)
	}
	for i, s := range steps {
		got := answers[i]
		if fmt.Sprint(got["line"]) != fmt.Sprint(i+1) || !strings.Contains(s.line, fmt.Sprintf(`"verb":"%s"`, got["verb"])) {
			t.Errorf("answer %d is to line %v, %v", i+1, got["line"], got["verb"])
		}
		if s.args == "" { // the verb has no such flag
			if fmt.Sprint(got["code"]) != "0" {
				t.Errorf("%s: %v", s.line, got)
			}
			continue
		}
		args := strings.Fields(s.args)
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], "~", " ")
		}
		verb := other.run("", append(append(args[:1:1], name...), append(args[1:], "-o", "json")...)...)
		if fmt.Sprint(got["code"]) != fmt.Sprint(verb.code) {
			t.Errorf("%s: code %v, and %d of the verb", s.line, got["code"], verb.code)
		}
		if verb.code != 0 {
			if want := strings.TrimSuffix(strings.TrimPrefix(verb.stderr, "producer: "), "\n"); got["error"] != want ||
				got["retry"] != false {
				t.Errorf("%s: %v, retry %v; and %q of the verb", s.line, got["error"], got["retry"], want)
			}
			continue
		}
		var ms = []string{"line", "verb", "code", "scheduled", "scheduled_ms"}
		if g, w := without(got, ms...), without(decodeOne(t, verb.stdout), ms...); g != w {
			t.Errorf("%s:\n got %s\nwant %s", s.line, g, w)
		}
	}
}

// TestPipeGoesOnAfterBadLines: the answer to a bad line is an error, and later lines are
// done. Blank lines are no requests.
func TestPipeGoesOnAfterBadLines(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const task = `"topic":"orders","id":"o-1"`
	bad := []struct{ line, want string }{
		{`{"verb":"schedule"`, "malformed JSON: the line ends too soon"},
		{`{}`, `verb: want schedule, cancel, reschedule or get; got ""`},
		{`{"verb":"load",` + task + `}`, `verb: want schedule, cancel, reschedule or get; got "load"`},
		{`{"verb":"get","id":"o-1"}`, "topic: is needed, here or with --topic"},
		{`{"verb":"get","topic":"orders"}`, "id: is needed"},
		{`{"verb":"get",` + task + `,"in":"1h"}`, "in: get takes no such field"},
		{`{"verb":"cancel",` + task + `,"headers":{}}`, "headers: cancel takes no such field"},
		{`{"verb":"reschedule",` + task + `,"in":"1h","payload":"x"}`, "payload: reschedule takes no such field"},
		{`{"verb":"reschedule",` + task + `}`, "in, at: one of them is needed"},
		{`{"verb":"schedule",` + task + `,"in":"soon"}`, "in: want a duration"},
		{`{"verb":"schedule",` + task + `,"at":1796119200}`,
			"at: looks like Unix seconds; want milliseconds: 1796119200000, or RFC 3339"},
		{`{"verb":"reschedule",` + task + `,"at":"1796119200"}`, "at: looks like Unix seconds"},
		{`{"verb":"schedule",` + task + `,"in":"1h","if_absent":1}`, "if_absent: want true or false, got a number"},
		{`{"verb":"schedule",` + task + `,"in":"1h","color":"red"}`,
			`unknown field "color"; known are verb, topic, if_absent, if_present, id`},
		{`{"verb":"schedule",` + task + `,"in":"1h","payload":"` + strings.Repeat("x", 4<<20) + `"}`,
			"line: must be at most "},
		{`{"verb":"schedule",` + task + `,"in":"1h","amqp":{},"headers":{}}`, "headers, amqp: only one of them may be given"},
		{`{"verb":"cancel",` + task + `,"amqp":{}}`, "amqp: cancel takes no such field"},
		{`{"verb":"schedule",` + task + `,"in":"1h","amqp":{"headers":{"n":{"type":"int8","value":300}}}}`,
			"amqp.headers.n.value: want a whole number of 8 bits"},
		{"\xff", "not valid UTF-8"},
	}
	var input strings.Builder
	for _, b := range bad {
		input.WriteString(b.line + "\n \r\n")
	}
	input.WriteString(`{"verb":"schedule","in":"1h",` + task + `}`)
	r, answers := c.pipe(strings.NewReader(input.String()))
	if r.code != 0 || r.stderr != "" || len(answers) != len(bad)+1 {
		t.Fatalf("exit code %d, %d answers to %d requests: %s", r.code, len(answers), len(bad)+1, r.stderr)
	}
	for i, b := range bad {
		got := answers[i]
		text, _ := got["error"].(string)
		if fmt.Sprintln(got["line"], got["code"], got["retry"]) != fmt.Sprintln(2*i+1, 2, false) ||
			!strings.HasPrefix(text, b.want) {
			t.Errorf("%.80s: %v, want %q and code 2", b.line, got, b.want)
		}
	}
	if fmt.Sprint(answers[len(bad)]["code"]) != "0" || c.stored() != 1 {
		t.Errorf("the good one: %v, %d tasks are stored", answers[len(bad)], c.stored())
	}
}

// TestPipeKeepsTheOrderOfAnID sends thousands of requests for a few IDs without waiting
// for answers. The answers are the same as if it waited.
func TestPipeKeepsTheOrderOfAnID(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const n, ids = 4000, 7
	there := map[string]string{} // payload by ID
	want := make([]string, n)
	r, answers := c.pipe(lines(n, func(i int) string {
		id := fmt.Sprint("o-", rand.IntN(ids))
		payload, stored := there[id]
		code := map[bool]string{true: "0 <nil>", false: "3 <nil>"}[stored]
		switch rand.IntN(6) {
		case 0:
			delete(there, id)
			want[i] = code
			return fmt.Sprintf(`{"verb":"cancel","id":"%s"}`, id)
		case 1:
			want[i] = code
			return fmt.Sprintf(`{"verb":"reschedule","id":"%s","in":"2h"}`, id)
		case 2:
			if want[i] = code; stored {
				want[i] = "0 " + payload
			}
			return fmt.Sprintf(`{"verb":"get","id":"%s"}`, id)
		case 3:
			if want[i] = "4 <nil>"; !stored {
				there[id], want[i] = fmt.Sprint(i), "0 <nil>"
			}
			return fmt.Sprintf(`{"verb":"schedule","id":"%s","in":"1h","payload":"%d","if_absent":true}`, id, i)
		default:
			there[id], want[i] = fmt.Sprint(i), "0 <nil>"
			return fmt.Sprintf(`{"verb":"schedule","id":"%s","in":"1h","payload":"%d"}`, id, i)
		}
	}), "--topic", "orders")
	if r.code != 0 || len(answers) != n {
		t.Fatalf("exit code %d, %d answers: %s", r.code, len(answers), r.stderr)
	}
	for i, got := range answers {
		if fmt.Sprint(got["line"]) != fmt.Sprint(i+1) {
			t.Fatalf("answer %d is to line %v", i+1, got["line"])
		}
		if g := fmt.Sprintf("%v %v", got["code"], got["payload"]); g != want[i] {
			t.Errorf("line %d: %s, want %s: %v", i+1, g, want[i], got)
		}
	}
}

// talk is a pipe that stays open.
type talk struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.WriteCloser
	stdout *bufio.Reader
	stderr strings.Builder
	ended  chan struct{}
}

func (c *sandbox) talk(t *testing.T) *talk {
	t.Helper()
	p := &talk{t: t, cmd: command(t, nil, c.args("pipe", "--topic", "orders")...), ended: make(chan struct{})}
	input, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.input, p.stdout, p.cmd.Stdout, p.cmd.Stderr = input, bufio.NewReader(out), in, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its exit code says it
	})
	t.Cleanup(func() {
		input.Close()
		out.Close()
		ending.Wait()
	})
	in.Close()
	return p
}

// ask sends a request and waits for its answer.
func (p *talk) ask(line string) map[string]any {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.input, line); err != nil {
		p.t.Fatal(err)
	}
	type read struct {
		line string
		err  error
	}
	heard := make(chan read, 1)
	go func() {
		line, err := p.stdout.ReadString('\n')
		heard <- read{line, err}
	}()
	answer := check.Receive(p.t, "the answer to "+line, heard)
	if answer.err != nil {
		p.t.Fatalf("%s: %v", line, answer.err)
	}
	return decodeOne(p.t, answer.line)
}

// TestPipeAnswersAtOnce: an answer doesn't wait for the next request. Ctrl-C ends a pipe
// that stays open.
func TestPipeAnswersAtOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	p := c.talk(t)
	for i := range 20 {
		if got := p.ask(fmt.Sprintf(`{"verb":"schedule","id":"o-%d","in":"1h"}`, i)); fmt.Sprint(got["code"]) != "0" ||
			c.stored() != i+1 {
			t.Fatalf("%v, %d tasks are stored", got, c.stored())
		}
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	check.Closed(t, "the end of the pipe", p.ended)
	wantError(t, result{code: p.cmd.ProcessState.ExitCode(), stderr: p.stderr.String()}, 1, "pipe: interrupted")
}

// TestPipeOutlastsRedis: while Redis is away, requests get an error as answer. When Redis
// is back, the same pipe goes on.
func TestPipeOutlastsRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendfsync", "always")
	c := sandboxAt(t, server.Addr(), "duefleet")
	p := c.talk(t)
	const schedule = `{"verb":"schedule","id":"o-1","in":"1h"}`
	if got := p.ask(schedule); fmt.Sprint(got["code"]) != "0" {
		t.Fatal(got)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{schedule, `{"verb":"get","id":"o-1"}`} {
		got := p.ask(line)
		text, _ := got["error"].(string)
		if fmt.Sprintln(got["code"], got["retry"]) != "1 true\n" || !strings.Contains(text, "check that Redis runs there") {
			t.Errorf("%s: %v", line, got)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first call on a dead connection finds that out.
	check.Until(t, "the pipe to serve again", func() bool { return fmt.Sprint(p.ask(schedule)["code"]) == "0" })
	if got := p.ask(`{"verb":"cancel","id":"o-1"}`); fmt.Sprintln(got["code"], got["cancelled"]) != "0 true\n" {
		t.Error(got)
	}
}

// TestPipeWithoutListener: if answers can't be written, the pipe ends even if more
// requests follow.
func TestPipeWithoutListener(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no device to write to that is full")
	}
	defer full.Close()
	cmd := command(t, nil, c.args("pipe", "--topic", "orders")...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = full, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until it has ended
		_, err = fmt.Fprintln(input, `{"verb":"get","id":"o-1"}`)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its exit code says it
	}()
	check.Closed(t, "the end of the pipe", ended)
	wantError(t, result{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}, 1,
		"pipe: write an answer: write /dev/stdout: no space left on device")
}

// TestPipePage: the requests in docs/pipe.md are answered as it says.
func TestPipePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/pipe.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```json\n")
	if len(blocks) != 5 {
		t.Fatalf("%d blocks of JSON, want requests, answers, rules, and a message of an intake", len(blocks)-1)
	}
	rules, _, _ := strings.Cut(blocks[3], "```")
	message, _, _ := strings.Cut(blocks[4], "```")
	c := newSandbox(t)
	if r, answers := c.pipe(strings.NewReader(rules + message)); r.code != 0 || len(answers) != 3 || c.stored() != 3 {
		t.Errorf("rules, and a message of an intake: %+v", r)
	}
	requests, _, _ := strings.Cut(blocks[1], "```")
	said, _, _ := strings.Cut(blocks[2], "```")
	want := strings.Split(strings.TrimSpace(said), "\n")
	r, answers := newSandbox(t).pipe(strings.NewReader(requests))
	if r.code != 0 || len(answers) != len(want) {
		t.Fatalf("exit code %d, %d answers, want %d: %s", r.code, len(answers), len(want), r.stderr)
	}
	for i, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
		w, whole := want[i], true
		if at := strings.Index(w, ` ...}`); at >= 0 {
			w, whole = w[:at], false
		}
		if at := strings.Index(w, `"due":"2026-11-22`); at >= 0 { // in half an hour from now
			w, whole = w[:at], false
		}
		if !strings.HasPrefix(line, w) || whole && line != w {
			t.Errorf("got  %s\nwant %s", line, want[i])
		}
	}
}
