package servers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// parentVar makes this test binary the parent in TestChildrenDieWithTheParent.
const parentVar = "DUEFLEET_STACK_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVar); dir != "" {
		beParent(dir)
		return
	}
	os.Exit(check.Leaks(m))
}

// TestRestartKeepsPortAndData: address and data stay the same after a stop, a crash, and
// a restart of a running server.
func TestRestartKeepsPortAndData(t *testing.T) {
	t.Parallel()
	// Only with a sync after each write is it certain that data survives kill -9.
	r := startRedis(t, servers.RedisConfig{Dir: t.TempDir(), Args: []string{"--appendfsync", "always"}})
	client := dial(t, r)
	ends := map[string]func() error{
		"stop": func() error { return r.Stop(t.Context()) },
		"kill": r.Kill,
		"none": func() error { return nil },
	}
	for name, end := range ends {
		check.OK(t, client.Set(t.Context(), name, "kept", 0).Err())
		addr, pid := r.Addr(), r.PID()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name != "none" && (r.PID() != 0 || listening(r.Addr())) {
			t.Errorf("%s: the server still runs", name)
		}
		if err := r.Restart(t.Context()); err != nil {
			t.Fatalf("restart after %s: %v", name, err)
		}
		if r.Addr() != addr || r.PID() == pid {
			t.Errorf("%s: was %s process %d, is %s process %d", name, addr, pid, r.Addr(), r.PID())
		}
		if got := client.Get(t.Context(), name).Val(); got != "kept" {
			t.Errorf("%s: the key holds %q, want kept", name, got)
		}
	}
}

// TestPause: a paused server accepts connections but doesn't answer until it is resumed.
// It can be stopped while paused.
func TestPause(t *testing.T) {
	t.Parallel()
	r := startRedis(t, servers.RedisConfig{Dir: t.TempDir()})
	client := dial(t, r)
	impatient := redis.NewClient(&redis.Options{Addr: r.Addr(), ReadTimeout: 200 * time.Millisecond, MaxRetries: -1})
	t.Cleanup(func() { _ = impatient.Close() })
	check.OK(t, r.Pause())
	if err := impatient.Ping(t.Context()).Err(); err == nil {
		t.Error("a paused server answered")
	}
	check.OK(t, r.Resume())
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	check.OK(t, r.Pause())
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("stop a paused server: %v", err)
	}
	if err := r.Pause(); err == nil {
		t.Error("paused a server that does not run")
	}
}

// TestStartSaysWhy: if a server can't start, the error has the end of its log, and
// nothing keeps running.
func TestStartSaysWhy(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	first := startRedis(t, servers.RedisConfig{Dir: t.TempDir()})
	var port int
	_, err := fmt.Sscanf(first.Addr(), "127.0.0.1:%d", &port)
	check.OK(t, err)
	tests := map[string]struct {
		cfg  servers.RedisConfig
		want string
	}{
		"no folder":    {servers.RedisConfig{}, "dir must not be empty"},
		"port taken":   {servers.RedisConfig{Dir: t.TempDir(), Port: port}, "port is taken"},
		"bad argument": {servers.RedisConfig{Dir: t.TempDir(), Args: []string{"--no-such-thing", "1"}}, "no-such-thing"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := servers.StartRedis(t.Context(), tt.cfg)
			if err == nil {
				_ = r.Kill()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
}

// TestConsulRestartKeepsData: a key survives a crash of the agent.
func TestConsulRestartKeepsData(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	c, err := servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() { _ = c.Kill() })
	put(t, "http://"+c.Addr()+"/v1/kv/topics/a", "shards: 4")
	check.OK(t, c.Kill())
	check.OK(t, c.Restart(t.Context()))
	if got := get(t, "http://"+c.Addr()+"/v1/kv/topics/a?raw"); got != "shards: 4" {
		t.Errorf("the key holds %q, want shards: 4", got)
	}
}

// TestFind: the error is one line that names the install command for the missing program.
func TestFind(t *testing.T) {
	t.Setenv("PATH", "")
	t.Chdir(t.TempDir())
	_, err := servers.Find("consul")
	if err == nil || err.Error() != "consul is not installed; to install it: make consul" {
		t.Errorf("got %v", err)
	}
	tools := ".dev/bin"
	check.OK(t, os.MkdirAll(tools, 0o750))
	if err := os.WriteFile(tools+"/consul", nil, 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	check.OK(t, os.Mkdir("below", 0o750))
	t.Chdir("below")
	if path, err := servers.Find("consul"); err != nil || !strings.HasSuffix(path, tools+"/consul") {
		t.Errorf("found %q, %v; want the one that make built", path, err)
	}
	if _, err := servers.Find("kafka"); err == nil {
		t.Error("found kafka")
	}
}

// TestFindChosen: a program in the folder that DUEFLEET_TEST_SERVERS names wins, and other
// programs are found as usual.
func TestFindChosen(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DUEFLEET_TEST_SERVERS", dir)
	chosen := dir + "/redis-server"
	if err := os.WriteFile(chosen, nil, 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	if path, err := servers.Find("redis-server"); err != nil || path != chosen {
		t.Errorf("found %q, %v; want %s", path, err, chosen)
	}
	if path, _ := servers.Find("rabbitmq-server"); strings.HasPrefix(path, dir) {
		t.Errorf("found %q, which isn't there", path)
	}
}

// TestVersion: servers report their name and version.
func TestVersion(t *testing.T) {
	t.Parallel()
	version, err := startRedis(t, servers.RedisConfig{Dir: t.TempDir()}).Version(t.Context())
	if err != nil || !regexp.MustCompile(`^(Redis|Valkey) \d+\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("got %q, %v", version, err)
	}
}

// TestChildrenDieWithTheParent: after SIGKILL of the process that started them, nothing
// listens on the servers' ports.
func TestChildrenDieWithTheParent(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server", "rabbitmq-server")
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), parentVar+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check.OK(t, err)
	if _, err := cmd.StdinPipe(); err != nil { // held open until the parent is gone
		t.Fatal(err)
	}
	check.OK(t, cmd.Start())
	var addrs []string
	for lines := bufio.NewScanner(out); len(addrs) < 3 && lines.Scan(); {
		addrs = append(addrs, lines.Text())
	}
	if len(addrs) < 3 {
		t.Fatalf("the parent named %d servers, want 3", len(addrs))
	}
	for _, addr := range addrs {
		if !listening(addr) {
			t.Fatalf("nothing listens on %s before the parent died", addr)
		}
	}
	check.OK(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, addr := range addrs {
		check.Until(t, "nothing to listen on "+addr, func() bool { return !listening(addr) })
	}
}

// beParent is the parent process: it starts servers and prints their addresses. Then it
// waits until the test kills it or closes its stdin.
func beParent(dir string) {
	ctx := context.Background()
	r, err := servers.StartRedis(ctx, servers.RedisConfig{Dir: dir + "/redis"})
	if err != nil {
		panic(err)
	}
	q, err := servers.StartRabbitMQ(ctx, servers.RabbitMQConfig{Dir: dir + "/rabbitmq"})
	if err != nil {
		panic(err)
	}
	names, err := q.Ctl(ctx, "eval", `os:getenv("ERL_EPMD_PORT").`)
	if err != nil {
		panic(err)
	}
	amqp := strings.TrimSuffix(strings.TrimPrefix(q.URL("/"), "amqp://guest:guest@"), "/")
	fmt.Printf("%s\n%s\n127.0.0.1:%s\n", r.Addr(), amqp, strings.Trim(names, "\"\n"))
	_, _ = io.Copy(io.Discard, os.Stdin)
}
