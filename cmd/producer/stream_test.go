package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// lines writes numbered lines, each made from its number, to a pipe and then closes it.
func lines(n int, line func(i int) string) io.Reader {
	out, in := io.Pipe()
	go func() {
		w := bufio.NewWriterSize(in, 64<<10)
		for i := range n {
			fmt.Fprintln(w, line(i))
		}
		in.CloseWithError(w.Flush())
	}()
	return out
}

// counted counts the bytes read.
type counted struct {
	io.Reader
	bytes atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// piped is a running verb that gets its input line by line.
type piped struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
}

// start starts a verb that reads lines.
func (c *sandbox) start(verb string, args ...string) *piped {
	c.t.Helper()
	cmd := command(c.t, nil, c.args(append([]string{verb, "--topic", "orders", "-o", "json"}, args...)...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	p := &piped{cmd: cmd, input: input, stdout: bufio.NewReader(stdout), stderr: &strings.Builder{}}
	cmd.Stderr = p.stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// wait returns the result of the verb.
func (p *piped) wait(t testing.TB) (result, map[string]any) {
	t.Helper()
	var line string
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		line, err = p.stdout.ReadString('\n')
		_ = p.cmd.Wait() // its exit code says it
	}()
	check.Closed(t, "the end of the stream", ended)
	if err != nil {
		t.Errorf("read the summary: %v", err)
	}
	return result{code: p.cmd.ProcessState.ExitCode(), stdout: line, stderr: p.stderr.String()}, decodeOne(t, line)
}

// ids returns the IDs of the stored tasks.
func (c *sandbox) ids() map[string]bool {
	c.t.Helper()
	there := map[string]bool{}
	for s := range testShards {
		ids, err := c.rdb.HKeys(c.t.Context(), fmt.Sprintf("%s:task:{orders:%d}", c.prefix, s)).Result()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, id := range ids {
			there[id] = true
		}
	}
	return there
}

// stream is a verb that reads lines until its pipe closes.
type stream struct {
	line    string // A format that takes the task's number.
	args    []string
	removes bool   // The verb removes tasks, which must be there.
	done    string // The word in messages for a line's success.
	counts  string // The summary's counts after 50 good lines.
	left    string // The summary's key for lines that the verb couldn't do.
}

// streams are the verbs that read lines.
var streams = map[string]stream{
	"load": {line: `{"id":"o-%d","in":"1h"}`, done: "in", counts: "scheduled=50 unwritten=0", left: "unwritten"},
	"cancel": {line: "o-%d", args: []string{"--file", "-"}, removes: true, done: "done",
		counts: "cancelled=50 not_found=0 failed=0", left: "failed"},
}

// begin starts a verb for at least n lines. done counts the lines that Redis has executed.
func (c *sandbox) begin(verb string, n int, more ...string) (p *piped, done func() int) {
	c.t.Helper()
	s, done := streams[verb], c.stored
	if s.removes {
		c.load(lines(n, func(i int) string { return fmt.Sprintf(streams["load"].line, i+1) }))
		done = func() int { return n - c.stored() }
	}
	return c.start(verb, append(s.args, more...)...), done
}

// TestStreamInterrupted: Ctrl-C ends a verb whose pipe stays open. All lines read are done,
// and the summary says so.
func TestStreamInterrupted(t *testing.T) {
	t.Parallel()
	for verb, s := range streams {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t)
			p, done := c.begin(verb, 50)
			for i := range 50 {
				fmt.Fprintf(p.input, s.line+"\n", i+1)
			}
			check.Count(t, "all lines", 50, done)
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			r, sum := p.wait(t)
			wantError(t, r, 1, verb+" orders: stopped; every good line up to line 50 is "+s.done+": interrupted")
			wantCounts(t, sum, "lines=50 safe_line=50 "+s.counts)
		})
	}
}

// TestStreamLosesRedis: if Redis dies meanwhile, the verb stops with the number of the last
// safe line. When Redis is back, every line up to that one is done.
func TestStreamLosesRedis(t *testing.T) {
	t.Parallel()
	for verb, s := range streams {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			const n = 20_000 // more than are cancelled before Redis dies
			server := servertest.OwnRedis(t, "--appendfsync", "always")
			c := sandboxAt(t, server.Addr(), "duefleet")
			var batch []string
			if !s.removes {
				batch = []string{"--batch", "20"}
			}
			p, done := c.begin(verb, n, batch...)
			fed := make(chan struct{})
			go func() {
				defer close(fed)
				for i := 1; ; i++ {
					if _, err := fmt.Fprintf(p.input, s.line+"\n", i); err != nil {
						return
					}
				}
			}()
			check.Count(t, "the first thousand lines", 1001, done)
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			r, sum := p.wait(t)
			<-fed
			safe, _ := strconv.Atoi(fmt.Sprint(sum["safe_line"]))
			wantError(t, r, 1, fmt.Sprintf("%s orders: stopped; every good line up to line %d is %s: ", verb, safe, s.done))
			if safe < 500 || fmt.Sprint(sum[s.left]) == "0" {
				t.Errorf("summary: %s", r.stdout)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			there := c.ids()
			for i := 1; i <= safe; i++ {
				if there[fmt.Sprint("o-", i)] == s.removes {
					t.Fatalf("line %d is not done, and %d is said to be safe", i, safe)
				}
			}
		})
	}
}
