package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/race"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// binaryVar names the built producer for the tests of this package.
const binaryVar = "DUEFLEET_TEST_PRODUCER"

// TestMain builds the command once. The tests run it as a user does.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "duefleet-producer-")
	if err != nil {
		panic(err)
	}
	binary := filepath.Join(dir, "producer")
	args := []string{"build", "-o", binary}
	if race.Detects {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	build.Stderr = os.Stderr
	if err := errors.Join(build.Run(), os.Setenv(binaryVar, binary)); err != nil {
		panic(err)
	}
	code := servertest.Leaks(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// result is the result of one run of the command.
type result struct {
	code           int
	stdout, stderr string
	// peak is the most memory it held, in bytes.
	peak int64
}

// command prepares a run with only the given environment. The run ends with its test.
func command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv(binaryVar), args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	return cmd
}

// finish runs a prepared command to its end.
func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	return finishCounting(t, cmd, func() int { return 0 })
}

// finishCounting is finish for a command that takes long; count shows its progress.
func finishCounting(t testing.TB, cmd *exec.Cmd, count func() int) result {
	t.Helper()
	return begin(t, cmd)(count)
}

// begin starts a prepared command; end waits for its end as finishCounting does.
func begin(t testing.TB, cmd *exec.Cmd) (end func(count func() int) result) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return func(count func() int) result {
		t.Helper()
		check.Progress(t, fmt.Sprintf("%.200q", cmd.Args[1:]), count, func() bool { return len(ended) > 0 })
		err := <-ended
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), peakMemory(cmd.ProcessState)}
	}
}

// sandbox is a test's own Redis prefix, which holds the topic orders.
type sandbox struct {
	t            testing.TB
	addr, prefix string
	rdb          redis.UniversalClient
	orders       *shard.Topic
}

const testShards = 3

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	return sandboxAt(t, addr, prefix)
}

// sandboxAt returns a corner of the test's own Redis.
func sandboxAt(t testing.TB, addr, prefix string) *sandbox {
	t.Helper()
	r := fixture.At(t, addr, prefix)
	c := &sandbox{t: t, addr: addr, prefix: prefix, rdb: r.Client}
	c.orders, _ = r.Serve(t, testShards)
	return c
}

// addTopic makes another topic, as a scanner does.
func (c *sandbox) addTopic(topic string) {
	c.t.Helper()
	if _, err := c.orders.Store().Topic(topic).Ensure(c.t.Context(), testShards); err != nil {
		c.t.Fatal(err)
	}
}

// now returns Redis\'s time in ms.
func (c *sandbox) now() int64 { return servertest.RedisNow(c.t, c.rdb).UnixMilli() }

// args adds the address and the prefix of Redis.
func (c *sandbox) args(args ...string) []string {
	return append(args, "--redis-addr", c.addr, "--redis-prefix", c.prefix)
}

// run executes a verb with input on its standard input.
func (c *sandbox) run(input string, args ...string) result {
	c.t.Helper()
	cmd := command(c.t, nil, c.args(args...)...)
	cmd.Stdin = strings.NewReader(input)
	return finish(c.t, cmd)
}

// must executes a verb that must succeed, and decodes its JSON.
func (c *sandbox) must(args ...string) map[string]any {
	c.t.Helper()
	r := c.run("", append(args, "-o", "json")...)
	if r.code != 0 || r.stderr != "" {
		c.t.Fatalf("%q: exit code %d, %s", args, r.code, r.stderr)
	}
	return decodeOne(c.t, r.stdout)
}

// stored counts the tasks in the corner.
func (c *sandbox) stored() int {
	c.t.Helper()
	total := 0
	for s := range testShards {
		n, err := c.rdb.ZCard(c.t.Context(), fmt.Sprintf("%s:due:{orders:%d}", c.prefix, s)).Result()
		if err != nil {
			c.t.Fatal(err)
		}
		total += int(n)
	}
	return total
}

// payload reads a task's payload through the verb get.
func (c *sandbox) payload(id string) string {
	c.t.Helper()
	text, _ := c.must("get", "--topic", "orders", "--id", id)["payload"].(string)
	return text
}

// decodeOne decodes text that must be exactly one JSON object on one line.
func decodeOne(t testing.TB, text string) map[string]any {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Fatalf("want one line, got %q", text)
	}
	var object map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("more than one object in %q", text)
	}
	return object
}

// writeFile writes a file in a folder of its own, and returns its path.
func writeFile(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantError checks an exit code and that standard error is one line with text.
func wantError(t testing.TB, r result, code int, text string) {
	t.Helper()
	oneLine := strings.HasPrefix(r.stderr, "producer: ") && strings.Index(r.stderr, "\n") == len(r.stderr)-1
	if r.code != code || !oneLine || !strings.Contains(r.stderr, text) {
		t.Errorf("exit code %d, want %d; standard error:\n%swant one line with %q", r.code, code, r.stderr, text)
	}
}

// peakMemory returns the peak memory of a process that has ended, in bytes; 0 if it isn't known.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok || runtime.GOOS != "linux" { // the unit of Maxrss differs between systems
		return 0
	}
	return usage.Maxrss << 10
}
