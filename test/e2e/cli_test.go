package e2e_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// checkError checks the output of a call that must fail: its exit code, and one line on
// stderr that contains the words.
func checkError(t *testing.T, what string, out fleet.Output, code int, words ...string) {
	t.Helper()
	if out.Code != code {
		t.Errorf("%s: code %d, want %d", what, out.Code, code)
	}
	line, rest, _ := strings.Cut(out.Stderr, "\n")
	if line == "" || rest != "" {
		t.Errorf("%s: stderr is not one line:\n%s", what, out.Stderr)
	}
	for _, word := range words {
		if !strings.Contains(strings.ToLower(out.Stderr), strings.ToLower(word)) {
			t.Errorf("%s: stderr does not contain %q:\n%s", what, word, out.Stderr)
		}
	}
	for _, trace := range []string{"goroutine ", "panic", ".go:"} {
		if strings.Contains(out.Stderr, trace) {
			t.Errorf("%s: stderr shows internals (%q):\n%s", what, trace, out.Stderr)
		}
	}
}

// file writes a configuration with raw lines and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	check.OK(t, fleet.WriteFile(path, []byte(content)))
	return path
}

func scan(t *testing.T, args ...string) fleet.Output {
	t.Helper()
	return run(t, fleet.Command{Path: programs.Scanner, Args: args})
}

func produce(t *testing.T, args ...string) fleet.Output {
	t.Helper()
	return run(t, fleet.Command{Path: programs.Producer, Args: args})
}

func schedule(args ...string) []string {
	return append([]string{"schedule", "--topic", "orders", "--id", "a", "--in", "1m"}, args...)
}

// TestUnreachableRedis: an error for an unreachable Redis names its address.
func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	config := file(t, "redis: {addrs: ["+addr+"]}\n")
	checkError(t, "scanner status", scan(t, "status", "--config", config), 1, addr, "check")
	checkError(t, "scanner parked ls", scan(t, "parked", "ls", "--topic", "orders", "--config", config), 1, addr, "check")
	checkError(t, "producer schedule", produce(t, schedule("--redis-addr", addr)...), 1, addr, "check")
	checkError(t, "producer get", produce(t, "get", "--topic", "orders", "--id", "a", "--config", config), 1, addr,
		"check")
}

// TestWrongPassword: an error for a wrong password says so, and doesn't print the
// password.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--requirepass", "right")
	for _, password := range []string{"s3cret-but-wrong", ""} {
		config := file(t, fmt.Sprintf("redis: {addrs: [%s], password: %q}\n", server.Addr(), password))
		for what, out := range map[string]fleet.Output{
			"scanner status":    scan(t, "status", "--config", config),
			"producer schedule": produce(t, schedule("--config", config)...),
		} {
			checkError(t, fmt.Sprintf("%s with password %q", what, password), out, 1, "password")
			if strings.Contains(out.Stderr+out.Stdout, "s3cret") {
				t.Errorf("%s shows the password:\n%s", what, out.Stderr)
			}
		}
	}
}

// TestMalformed: every command names the file and the line of a mistake in the
// configuration.
func TestMalformed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		words   []string
	}{
		"AMQP URL": {"rabbitmq:\n  urls: [http://127.0.0.1]\n", []string{"config.yaml:2", "rabbitmq.urls", "amqp"}},
		"AMQP URL, no parse": {"rabbitmq:\n  urls: [\"amqp://guest:s3cret@127.0.0.1:port/\"]\n",
			[]string{"config.yaml:2", "rabbitmq.urls"}},
		"Redis address": {"redis:\n  addrs: [127.0.0.1]\n", []string{"config.yaml:2", "redis.addrs"}},
		"unknown key":   {"redis:\n  adders: [127.0.0.1:6379]\n", []string{"config.yaml:2", "adders"}},
		"wrong type":    {"redis:\n  db: many\n", []string{"config.yaml:2", "redis.db"}},
		"no YAML":       {"redis:\n  addrs: [\n", []string{"config.yaml:"}},
	}
	for name, tt := range tests {
		config := file(t, tt.content)
		for _, out := range []fleet.Output{scan(t, "run", "--config", config), scan(t, "status", "--config", config)} {
			checkError(t, name, out, 1, tt.words...)
			if strings.Contains(out.Stderr, "s3cret") {
				t.Errorf("%s: the password is shown:\n%s", name, out.Stderr)
			}
		}
	}
	checkError(t, "no such file", scan(t, "run", "--config", "/nowhere/config.yaml"), 1, "/nowhere/config.yaml")
}

// TestUsage: wrong usage ends with exit code 2.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"nothing"}, {"run", "--nothing"}, {"run", "extra"}, {"parked", "replay", "--topic", "orders"},
		{"tasks", "ls"}, {"status", "-o", "xml"}, {"topic", "set"},
	} {
		checkError(t, fmt.Sprintf("scanner %q", args), scan(t, args...), 2, "--help")
	}
	for _, args := range [][]string{
		{}, {"nothing"}, {"schedule"}, schedule("--at", "1"), {"schedule", "--topic", "orders", "--id", "a"},
		{"schedule", "--topic", "orders", "--id", "a", "--in", "soon"}, {"get", "--topic", "orders"},
	} {
		checkError(t, fmt.Sprintf("producer %q", args), produce(t, args...), 2, "--help")
	}
	for _, program := range []string{programs.Scanner, programs.Producer} {
		out := run(t, fleet.Command{Path: program, Args: []string{"--help"}})
		if out.Code != 0 || !strings.Contains(out.Stdout, "Exit codes") {
			t.Errorf("%s --help: code %d, stdout %q; want 0 and the exit codes", filepath.Base(program), out.Code, out.Stdout)
		}
	}
}

// TestUnknownTopic: scheduling into a topic that no scanner has served is an error. So is
// any command that asks about the topic.
func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	checkError(t, "schedule", w.producer("schedule", "--topic", "odrers", "--id", "a", "--in", "1m"), 1, "odrers",
		"unknown topic")
	checkError(t, "status", w.scanner("status", "--topic", "odrers"), 3, "odrers", "unknown topic")
	checkError(t, "parked ls", w.scanner("parked", "ls", "--topic", "odrers"), 3, "odrers", "unknown topic")
	checkError(t, "parked purge", w.scanner("parked", "purge", "--all", "--topic", "odrers"), 3, "odrers", "unknown topic")
	checkError(t, "topic rm", w.scanner("topic", "rm", "odrers"), 3, "odrers", "unknown topic")
	checkError(t, "topic set without Consul", w.scanner("topic", "set", "orders", "shards=2"), 1, "consul.addr")
}

// TestExitCodes: the producer's commands end with their documented exit codes.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	w.consume("orders.due")
	name := []string{"--topic", "orders", "--id", "a b\n🚀"}
	call := func(verb string, more ...string) fleet.Output {
		return w.producer(append(append([]string{verb}, name...), more...)...)
	}
	for _, verb := range []string{"cancel", "get"} {
		checkError(t, verb, call(verb), 3, "no such task")
	}
	checkError(t, "reschedule", call("reschedule", "--in", "1m"), 3, "no such task")
	must(t, call("schedule", "--in", "1h", "--payload", "p", "--header", "k=v=w", "--content-type", "text/plain"))
	checkError(t, "schedule again", call("schedule", "--in", "1h", "--if-absent"), 4, "exists")
	before := time.Now()
	must(t, call("reschedule", "--in", "300ms"))
	check.Until(w.t, "the message", func() bool { return len(w.delivered("a b\n🚀")) == 1 })
	d := w.delivered("a b\n🚀")[0]
	if string(d.Body) != "p" || d.ContentType != "text/plain" || d.Headers["k"] != "v=w" ||
		d.At.Sub(before) < 300*time.Millisecond {
		t.Errorf("%q, %s, %v after %s; want p, text/plain, k: v=w after 300ms", d.Body, d.ContentType, d.Headers,
			d.At.Sub(before))
	}
	check.Until(t, "it to be gone", rarely(func() bool { return w.status().Topic("orders").Pending == 0 }))
	checkError(t, "get after it was delivered", call("get"), 3, "no such task")
}

// TestAdminPortInUse: a scanner whose admin port is taken names it and exits.
func TestAdminPortInUse(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	addr := l.Addr().String()
	out := run(t, fleet.Command{
		Path: programs.Scanner, Args: []string{"run", "--config", w.config},
		Env: []string{"DUEFLEET_ADMIN_LISTEN=" + addr, "DUEFLEET_LOG_LEVEL=error"},
	})
	checkError(t, "run", out, 1, addr, "admin.listen", "in use")
}

// TestEnvironment: a variable wins over the configuration file.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	addr, _ := servertest.Redis(t)
	config := file(t, "redis: {addrs: [127.0.0.1:1]}\n")
	out := run(t, fleet.Command{
		Path: programs.Scanner, Args: []string{"status", "--config", config}, Env: []string{"DUEFLEET_REDIS_ADDRS=" + addr},
	})
	must(t, out)
	out = run(t, fleet.Command{Path: programs.Scanner, Args: []string{"check", "--config", config},
		Env: []string{"DUEFLEET_REDIS_DB=many"}})
	if out.Code != 1 || !strings.Contains(out.Stdout+out.Stderr, "DUEFLEET_REDIS_DB") {
		t.Errorf("code %d, %s%s; want 1 and the variable's name", out.Code, out.Stdout, out.Stderr)
	}
}

// TestCheck: check prints every mistake with its key and line, and exits with 1.
func TestCheck(t *testing.T) {
	t.Parallel()
	config := file(t, `redis:
  addrs: [127.0.0.1:6379]
  db: -1
rabbitmq:
  url: amqp://127.0.0.1
shutdown_timeout: 15
log: {level: loud}
topics:
  orders:
    shards: 5000
    tick: 1s
    lease: 2 hours
    declare: {type: direct}
    backoff: {min: 1m, max: 1s}
  "a b":
    shards: 1
  invoices:
    rate: fast
`)
	out := scan(t, "check", "--config", config)
	if out.Code != 1 {
		t.Errorf("code %d, want 1", out.Code)
	}
	lines := strings.Split(strings.TrimSpace(out.Stdout), "\n")
	for _, want := range []struct {
		line int
		key  string
	}{
		{3, "redis.db"}, {5, "rabbitmq.url"}, {6, "shutdown_timeout"}, {7, "log.level"},
		{10, "topics.orders.shards"}, {12, "topics.orders.lease"}, {13, "topics.orders.declare"},
		{14, "topics.orders.backoff"}, {15, "a b"}, {18, "topics.invoices.rate"},
	} {
		place := fmt.Sprintf("config.yaml:%d", want.line)
		found := false
		for _, line := range lines {
			found = found || strings.Contains(line, place) && strings.Contains(line, want.key)
		}
		if !found {
			t.Errorf("no line names %s and %s", place, want.key)
		}
	}
	if len(lines) != 10 {
		t.Errorf("%d lines, want one for each of the 10 mistakes", len(lines))
	}
	if t.Failed() {
		t.Logf("stdout:\n%sstderr:\n%s", out.Stdout, out.Stderr)
	}
	good := file(t, "topics: {orders: {shards: 4}}\n")
	if out := scan(t, "check", "--config", good); out.Code != 0 || out.Stderr != "" {
		t.Errorf("a good file: code %d, stderr %q; want 0 and nothing", out.Code, out.Stderr)
	}
}

// TestTopicsAreCompleted: shell completion offers the served topics, with an operator's
// rights. Without Redis it offers nothing.
func TestTopicsAreCompleted(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	w.awaitTopic("orders")
	for line, want := range map[string]string{
		"status --topic": "orders\n:4\n", "topic get": "orders\n:4\n", "status": "orders\n:4\n",
		"parked purge": "orders\n:4\n", "status -o": "table\njson\n:4\n",
		"topic set": "orders\n:4\n", "tasks ls --state": "waiting\nleased\nparked\nretrying\n:4\n",
	} {
		args := append([]string{"__completeNoDesc", "--config", w.file(operatorRole)}, strings.Fields(line)...)
		if out := scan(t, append(args, "")...); out.Code != 0 || out.Stdout != want {
			t.Errorf("%s is completed by %q, code %d, want %q", line, out.Stdout, out.Code, want)
		}
	}
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	if out := scan(t, "__completeNoDesc", "--config", file(t, "redis: {addrs: ["+addr+"]}\n"), "topic", "get",
		""); out.Code != 0 || out.Stdout != ":4\n" {
		t.Errorf("without Redis a topic is completed by %q, code %d", out.Stdout, out.Code)
	}
}
