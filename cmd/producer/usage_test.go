package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestWrongUsage: the exit code is 2, one line names the mistake and the help, and Redis
// isn't contacted.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	task := []string{"--topic", "orders", "--id", "o-1"}
	for line, want := range map[string]string{
		"":                                "name a command",
		"frobnicate":                      `unknown command "frobnicate"; see producer --help`,
		"schedule --in 1m --id o-1":       `required flag(s) "topic" not set; see producer schedule --help`,
		"schedule --in 1m --topic orders": `"id" not set`,
		"get --topic orders":              `"id" not set; see producer get --help`,
		"cancel --topic orders": "exactly one of --id, --file, --id-prefix and --group must be given; see " +
			"producer cancel --help",
		"cancel --id o-1":                    `required flag(s) "topic" not set; see producer cancel --help`,
		"cancel TASK --file -":               "exactly one of --id, --file, --id-prefix and --group must be given",
		"cancel TASK --id-prefix o":          "exactly one of --id, --file, --id-prefix and",
		"cancel --topic orders --id-prefix=": "--id-prefix: is empty, and would select every task",
		"cancel TASK --errors bad.txt":       "--errors goes with --file",
		"schedule TASK": "exactly one of --in and --at must be given; see producer " +
			"schedule --help",
		"schedule TASK --in 1m --at 0":                "exactly one of --in and --at must be given",
		"schedule TASK --every soon":                  `--every "soon": want a duration such as 30m`,
		"schedule TASK --every=":                      `--every "": want a duration`,
		"schedule TASK --every 0s":                    `--every "0s": must not be 0`,
		"schedule TASK --every 1h --until soon":       `--until "soon": want RFC 3339`,
		"schedule TASK --every 1h --until 1796119200": `--until "1796119200": looks like Unix seconds`,
		"schedule TASK --every 1h --in 1m --at 0":     "only one of --in and --at may be given",
		"schedule TASK --in 1m --runs 3":              "--runs goes with --every or --cron",
		"schedule TASK --in 1m --zone UTC":            "--zone goes with --every or --cron",
		"reschedule TASK --in 1m --every 1h":          "unknown flag: --every",
		"reschedule TASK": "exactly one of --in and --at must be given; see producer " +
			"reschedule --help",
		"schedule TASK --in soon":             `--in "soon": want a duration such as 30m`,
		"schedule TASK --in 30":               "want a duration",
		"schedule TASK --at tomorrow":         `--at "tomorrow": want RFC 3339`,
		"schedule TASK --at 2026-12-01":       "want RFC 3339",
		"schedule TASK --at 1796119200":       `--at "1796119200": looks like Unix seconds; want milliseconds: 1796119200000, or RFC 3339`,
		"reschedule TASK --at 1796119200":     `--at "1796119200": looks like Unix seconds`,
		"schedule TASK --in 1m --bogus":       "unknown flag: --bogus",
		"schedule TASK --in 1m extra":         `unexpected argument "extra"`,
		"schedule TASK --in 1m --header a":    `--header "a": want key=value`,
		"schedule TASK --in 1m -o yaml":       "must be text or json",
		"schedule TASK --in 1m --max-payload": "needs an argument",
		"get TASK --max-payload 0":            "--max-payload 0: must be 1 to 16777216 bytes",
		"get TASK --max-payload 16777217":     "--max-payload 16777217: must be",
		"get TASK --redis-addr=":              "--redis-addr: must be 1 to 64 addresses; got 0",
		"get TASK --redis-addr=r://:SECRET@a": "--redis-addr: must be host:port, as in 127.0.0.1:6379; number " +
			"1 is a URL",
		"load --topic orders --batch 0":                  "--batch 0: must be 1 to 1000",
		"load --topic orders --batch 1001":               "--batch 1001: must be 1 to 1000",
		"load --topic orders --batch x":                  "invalid argument",
		"load --topic orders tasks.ndjson":               `unexpected argument "tasks.ndjson"; a value follows its flag`,
		"schedule mails --topic orders --id o-1 --in 1m": `unexpected argument "mails"; a value follows its flag, and the topic is "orders" by --topic; see producer schedule --help`,
		"get orders o-1 --id o-1":                        `unexpected argument "o-1"; a value follows its flag`,
		"cancel orders mails --id o-1":                   `unexpected argument "mails"`,
		"pipe orders mails":                              `unexpected argument "mails"`,
		"pipe mails --topic orders":                      `unexpected argument "mails"; a value`,
		"load mails - --topic orders":                    `unexpected argument "mails"; a value`,
		"load orders tasks.ndjson":                       `unexpected argument "tasks.ndjson"`,
		"load orders --file a -":                         "only one of --file and - may be given",
		"load - orders":                                  `unexpected argument "-"`,
		"load --topic orders - -":                        `unexpected argument "-"`,
		"load --topic orders --file a -":                 "only one of --file and - may be given",
		"load --topic orders --file usage_test.go --errors ../producer/usage_test.go": "" +
			"--errors ../producer/usage_test.go: is the file that is loaded",
		"export":                              "name a topic, or give --all; see producer export --help",
		"export -":                            "name a topic, or give --all",
		"export orders --all":                 "only one of TOPIC and --all may be given",
		"export --all --topic orders":         "only one of TOPIC and --all may be given",
		"export orders mails orders":          "topic orders is given twice",
		"export orders --topic orders":        "topic orders is given twice",
		"export orders - mails":               `unexpected argument "-"; it comes last, and once`,
		"export orders --file a -":            "only one of --file and - may be given",
		"export orders --state done":          `--state "done": must be among waiting, retrying, leased, parked`,
		"export orders --due-before soon":     `--due-before "soon": want RFC 3339`,
		"export orders --file a --errors ./a": "--errors ./a: is the file of --file",
		"export orders --file usage_test.go --errors ../producer/usage_test.go": "" +
			"--errors ../producer/usage_test.go: is the file of --file",
		"verify":                                          "name a topic; see producer verify --help",
		"verify a b":                                      `unexpected argument "b"`,
		"verify a --rate 0":                               "--rate 0: must be 1 to 10000",
		"verify a --rate 10001":                           "--rate 10001: must be 1 to 10000",
		"verify a --for 999ms":                            "--for 999ms: must be 1s to 24h",
		"verify a --for 25h":                              "--for 25h0m0s: must be 1s to 24h",
		"verify a --delay 25h":                            "--delay 25h0m0s: must be 0s to 24h",
		"verify a --delay=-1s":                            "--delay",
		"verify a --wait 25h":                             "--wait 25h0m0s: must be 0s to 24h",
		"verify a --max-late 25h":                         "--max-late 25h0m0s: must be 0s to 24h",
		"verify a --payload-bytes=-1":                     "--payload-bytes -1: must be 0 to 262144",
		"verify a --payload-bytes 262145":                 "--payload-bytes 262145: must be 0 to 262144",
		"verify a --rate 10000 --for 1h --delay 101s":     "up to 1010000 tasks would wait at once, more than 1000000",
		"verify a --rabbitmq-url r://:SECRET@a":           "--rabbitmq-url: ",
		"verify a --rabbitmq-url=":                        "--rabbitmq-url: ",
		"schedule TASK --in 1m --header a=1 --header a=2": `--header "a": given twice`,
		"schedule TASK --in 1m --payload x --payload-file -": "only one of --payload and " +
			"--payload-file may be given",
		"schedule TASK --in 1m --payload= --payload-file=/dev/0": "only one of --payload and " +
			"--payload-file",
	} {
		var args []string
		for _, word := range strings.Fields(line) {
			if word == "TASK" {
				args = append(args, task...)
			} else {
				args = append(args, word)
			}
		}
		r := finish(t, command(t, []string{"DUEFLEET_REDIS_ADDRS=127.0.0.1:1"}, args...))
		wantError(t, r, 2, want)
		if r.stdout != "" || !strings.Contains(r.stderr, "--help") || strings.Contains(r.stderr, "SECRET") {
			t.Errorf("%s: printed %q, and %q", line, r.stdout, r.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"help"}, {"schedule", "--help"}, {"load", "-h"}} {
		r := finish(t, command(t, nil, args...))
		if r.code != 0 || !strings.Contains(r.stdout, "Usage:") || r.stderr != "" {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
}

// everyVerb returns a valid command line for each verb, without the address of Redis.
func everyVerb() map[string][]string {
	return map[string][]string{
		"schedule":   {"schedule", "--topic", "orders", "--id", "o-1", "--in", "1m"},
		"cancel":     {"cancel", "--topic", "orders", "--id", "o-1"},
		"reschedule": {"reschedule", "--topic", "orders", "--id", "o-1", "--in", "1m"},
		"get":        {"get", "--topic", "orders", "--id", "o-1"},
		"load":       {"load", "--topic", "orders"},
	}
}

// oneTask is input for load.
const oneTask = `{"id":"o-1","in":"1m"}` + "\n"

// TestUnreachableRedis: one line that says what to check.
func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	for _, args := range everyVerb() {
		cmd := command(t, nil, append(args, "--redis-addr", "127.0.0.1:1")...)
		cmd.Stdin = strings.NewReader(oneTask)
		wantError(t, finish(t, cmd), 1, "connection refused; check that Redis runs there, and --redis-addr")
	}
	// An invalid name is refused without asking a name server, which could take long.
	cmd := command(t, nil, append(everyVerb()["get"], "--redis-addr", "no-such-host..invalid:6379")...)
	wantError(t, finish(t, cmd), 1, "lookup no-such-host..invalid: no such host; check that Redis runs there")
}

// TestAResetConnection: a Redis that refuses a certificate resets the connection, and the
// reset may arrive before the reason. TestGuarded meets that now and then.
func TestAResetConnection(t *testing.T) {
	t.Parallel()
	reset := &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	got := advice(fmt.Errorf("ask Redis for the time: %w", reset))
	check.Equal(t, "advice", got, "; the server closed the connection: see its log; if it asks for certificates, check "+
		"redis.tls.cert_file and key_file")
}

func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for _, args := range everyVerb() {
		wantError(t, c.run(oneTask, append(args, "--topic", "mails")...), 1, "unknown topic mails")
	}
}

// TestPasswords: without a password, or with a wrong one, one line says where it belongs
// and doesn't contain it. The environment or a file provides the right one.
func TestPasswords(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--requirepass", "right")
	args := append(everyVerb()["get"], "--redis-addr", server.Addr())
	const where = "check redis.username and redis.password in --config, or DUEFLEET_REDIS_USERNAME and " +
		"DUEFLEET_REDIS_PASSWORD"
	wantError(t, finish(t, command(t, nil, args...)), 1, where)
	r := finish(t, command(t, []string{"DUEFLEET_REDIS_PASSWORD=hunter2"}, args...))
	wantError(t, r, 1, where)
	if strings.Contains(r.stderr, "hunter2") {
		t.Errorf("the password is in %s", r.stderr)
	}
	wantError(t, finish(t, command(t, []string{"DUEFLEET_REDIS_PASSWORD=right"}, args...)), 1, "unknown topic orders")
	file := writeFile(t, "config.yaml", "redis: {password: right}\n")
	wantError(t, finish(t, command(t, nil, append(args, "--config", file)...)), 1, "unknown topic orders")
}

// TestFullRedis: a server at maxmemory refuses new tasks. One line says so, and nothing is
// stored.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--maxmemory-policy", "noeviction")
	c := sandboxAt(t, server.Addr(), "duefleet")
	c.must("schedule", "--topic", "orders", "--id", "o-0", "--in", "1h")
	if err := c.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	wantError(t, c.run("", everyVerb()["schedule"]...), 1, "Redis is out of memory")
	r := c.run(oneTask, "load", "--topic", "orders", "-o", "json")
	wantError(t, r, 1, "stopped; nothing is known to be in: ")
	if c.stored() != 1 {
		t.Errorf("%d tasks are stored", c.stored())
	}
}

// TestBadConfiguration: one line names every mistake.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "config.yaml", "redis:\n  adrs: [x]\n  db: one\n")
	r := finish(t, command(t, nil, append(everyVerb()["get"], "--config", file)...))
	wantError(t, r, 1, "config.yaml:2: redis.adrs: ")
	wantError(t, r, 1, "config.yaml:3: redis.db: ")
	wantError(t, finish(t, command(t, nil, append(everyVerb()["get"], "--config", file+"x")...)), 1, "no such file")
}

// TestShellsCompleteTopics: shells complete the topics that Redis knows, by flag or
// argument, and none while Redis is away.
func TestShellsCompleteTopics(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	at := []string{"__completeNoDesc", "--redis-addr", c.addr, "--redis-prefix", c.prefix}
	for _, line := range [][]string{{"get", ""}, {"schedule", "--topic", ""}, {"cancel", ""}, {"load", ""},
		{"export", ""}, {"export", "mails", ""}, {"export", "--topic", ""}} {
		if r := finish(t, command(t, nil, append(at, line...)...)); r.code != 0 ||
			!strings.HasSuffix("\n"+r.stdout, "\norders\n:4\n") {
			t.Errorf("%q is completed by %q, code %d: %s", line, r.stdout, r.code, r.stderr)
		}
	}
	if r := finish(t, command(t, nil, append(at, "get", "orders", "")...)); strings.Contains(r.stdout, "orders") {
		t.Errorf("a second argument is completed by %q", r.stdout)
	}
	if r := finish(t, command(t, nil, "__completeNoDesc", "--redis-addr", "127.0.0.1:1", "schedule", "--topic",
		"")); r.code != 0 || r.stdout != ":4\n" {
		t.Errorf("without Redis it is completed by %q, code %d", r.stdout, r.code)
	}
}

// TestReference: docs/reference holds the help of every verb, so a changed flag changes
// the page.
func TestReference(t *testing.T) {
	t.Parallel()
	const anew = "go test ./cmd/producer -run TestReference -update"
	page, err := cli.Reference(rootCommand(), anew)
	if err != nil {
		t.Fatal(err)
	}
	check.Golden(t, filepath.Join("..", "..", "docs", "reference", "producer.md"), string(page), anew)
}

// TestRelayRunsTheProgramOfTheOutbox: with all arguments, those before the verb included. If
// it isn't installed, the error says how to build it.
func TestRelayRunsTheProgramOfTheOutbox(t *testing.T) {
	t.Parallel()
	args := []string{"--config", "c.yaml", "relay", "--batch", "7", "--help"}
	missing := finish(t, command(t, nil, args...))
	check.Equal(t, "the exit code", missing.code, 1)
	check.Equal(t, "stderr", missing.stderr, "producer: duefleet-relay is neither next to producer nor in PATH; "+
		"in a clone of duefleet, \"make relay\" builds bin/duefleet-relay\n")
	dir := t.TempDir()
	script := []byte("#!/bin/sh\necho \"$@\"\nexit 7\n")
	check.OK(t, os.WriteFile(filepath.Join(dir, "duefleet-relay"), script, 0o700)) //nolint:gosec // it is a program
	found := finish(t, command(t, []string{"PATH=" + dir}, args...))
	check.Equal(t, "the exit code", found.code, 7)
	check.Equal(t, "the arguments", found.stdout, "--config c.yaml --batch 7 --help\n")
}
