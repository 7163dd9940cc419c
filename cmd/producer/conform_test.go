package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/conform"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// conformer plays transcripts on its own Redis server, because the kit supports only a
// single server.
type conformer struct {
	t    *testing.T
	addr string
	rdb  redis.UniversalClient
}

func newConformer(t *testing.T, args ...string) *conformer {
	t.Helper()
	server := servertest.OwnRedis(t, args...)
	return &conformer{t, server.Addr(), fixture.Client(t, server.Addr())}
}

// run plays transcripts with a program, and checks that they leave nothing in Redis.
func (c *conformer) run(args ...string) result {
	c.t.Helper()
	r := conformAs(c.t, nil, append([]string{"--redis-addr", c.addr}, args...)...)
	keys, err := c.rdb.Keys(c.t.Context(), "*").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	if len(keys) != 1 || keys[0] != "somebody's" {
		c.t.Errorf("after %q Redis holds %q, want what it held before", args, keys)
	}
	return r
}

func (c *conformer) somebodys() *conformer {
	c.t.Helper()
	if err := c.rdb.Set(c.t.Context(), "somebody's", "data", 0).Err(); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// conformAs runs the verb with the environment that the programs need.
func conformAs(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return finish(t, command(t, append(env, "PATH="+os.Getenv("PATH")), append([]string{"conform"}, args...)...))
}

// conformed decodes the report.
func conformed(t *testing.T, r result) (report conformReport) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v in %q; %s", err, r.stdout, r.stderr)
	}
	return report
}

// TestConformPasses: the producer of this repository passes every transcript.
func TestConformPasses(t *testing.T) {
	t.Parallel()
	c := newConformer(t).somebodys()
	r := c.run("-o", "json", "--", os.Getenv(binaryVar), "pipe")
	report := conformed(t, r)
	all, err := conform.Transcripts()
	if err != nil {
		t.Fatal(err)
	}
	for _, transcript := range report.Transcripts {
		for _, f := range transcript.Failures {
			t.Errorf("%s: %s", transcript.Name, f)
		}
	}
	if r.code != 0 || r.stderr != "" || report.Passed != len(all) || report.Failed != 0 {
		t.Errorf("exit code %d, %d of %d passed, %d failed: %s", r.code, report.Passed, len(all), report.Failed, r.stderr)
	}
}

// TestConformBehindAPassword: the program needs neither the password nor the number of the
// database, because the kit's own connection has both.
func TestConformBehindAPassword(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--requirepass", "right")
	file := writeFile(t, "config.yaml",
		"redis: {addrs: [\""+server.Addr()+"\"], password: right, db: 3, prefix: mine}\n")
	env := []string{"DUEFLEET_REDIS_USERNAME=default"}
	args := []string{"--config", file, "--only", "schedule-m*", "--", os.Getenv(binaryVar), "pipe"}
	if r := conformAs(t, env, args...); r.code != 0 || !strings.Contains(r.stdout, "ok      schedule-moving ") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	args[len(args)-1] = "pipe\n" // an unknown command ends the program at once
	wantError(t, conformAs(t, env, args...), 1, "transcripts failed")
}

// TestConformFails: for a program that fails, conform prints the transcript's name and the
// failure, and the exit code is 1.
func TestConformFails(t *testing.T) {
	t.Parallel()
	c := newConformer(t).somebodys()
	for program, want := range map[string]string{
		`cat`:                          "code: is missing, want 0",
		`exit 0`:                       "the program ended, or ",
		`read line; echo no`:           `the program answered "no", which is no JSON object`,
		`echo sorry >&2; exit 4`:       "it said: sorry",
		`read line; exec sleep 100000`: "the program gave no answer within 1s",
		`read line; echo '{}'; cat`:    "line: is missing, want 1",
		`while read line; do echo '{"line":1,"verb":"schedule","topic":"schedule-moving","id":"order-3","code":0,"due":"2099-12-01T10:00:00.250Z","due_ms":4099802400250}'; done`: "no script 1 was sent, want fence at shard 1 -> ok",
	} {
		patience := "1m"
		if strings.Contains(program, "sleep") {
			patience = "1s"
		}
		r := c.run("--only", "schedule-moving", "--patience", patience, "--", "sh", "-c", program)
		wantError(t, r, 1, "conform: 1 of 1 transcripts failed")
		if !strings.Contains(r.stdout, "FAILED  schedule-moving ") || !strings.Contains(r.stdout, want) ||
			!strings.Contains(r.stdout, "0 passed, 1 failed\n") {
			t.Errorf("%s: got\n%swant %q", program, r.stdout, want)
		}
	}
	report := conformed(t, c.run("--only", "schedule-moving", "-o", "json", "--", "cat"))
	if report.Failed != 1 || len(report.Transcripts) != 1 || len(report.Transcripts[0].Failures) == 0 {
		t.Errorf("got %+v, want a failure", report)
	}
}

// TestConformKeepsTheProgramInItsCorner: other commands that the program sends don't reach
// Redis, and are failures.
func TestConformKeepsTheProgramInItsCorner(t *testing.T) {
	t.Parallel()
	c := newConformer(t).somebodys()
	for sent, want := range map[string]string{
		"FLUSHALL":                   `the program sent ["FLUSHALL"], which docs/protocol.md doesn't have`,
		"SET somebody's nothing":     "which docs/protocol.md doesn't have",
		"GET somebody's":             "which is not under the prefix in DUEFLEET_REDIS_PREFIX",
		"EVAL return{} 1 somebody's": "a script that is none of docs/protocol, byte for byte",
		"SCRIPT FLUSH":               "which docs/protocol.md doesn't have",
	} {
		// bash itself can write to a port. The answer to the request comes last.
		program := `exec 3<>/dev/tcp/${DUEFLEET_REDIS_ADDRS/:/\/}; read line; set -- ` + strings.ReplaceAll(sent, "'", `\'`) + `
			printf '*%d\r\n' $# >&3; for word; do printf '$%d\r\n%s\r\n' ${#word} "$word" >&3; done; read refusal <&3; echo '{"line":1,"code":1}'`
		r := c.run("--only", "unknown-topic", "--", "bash", "-c", program)
		wantError(t, r, 1, "conform: 1 of 1 transcripts failed")
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%s: got\n%swant %q", sent, r.stdout, want)
		}
	}
	if data := c.rdb.Get(t.Context(), "somebody's").Val(); data != "data" {
		t.Errorf("somebody's data is %q", data)
	}
}

func TestConformLists(t *testing.T) {
	t.Parallel()
	all, err := conform.Transcripts()
	if err != nil {
		t.Fatal(err)
	}
	r := conformAs(t, nil, "--list")
	if r.code != 0 || strings.Count(r.stdout, "\n") != len(all) || !strings.Contains(r.stdout, "\nschedule-moving  ") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = conformAs(t, nil, "--list", "--only", "get-*", "-o", "json")
	var names []struct{ Name, About string }
	if err := json.Unmarshal([]byte(r.stdout), &names); err != nil || len(names) == 0 ||
		!strings.HasPrefix(names[0].Name, "get-") || names[0].About == "" {
		t.Errorf("%v: %s%s", err, r.stdout, r.stderr)
	}
}

// TestConformUsage: wrong usage is an error at once.
func TestConformUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                            "name a program behind --; see producer conform --help",
		"cat":                         `unexpected argument "cat"; the program stands behind --`,
		"more -- cat":                 `unexpected argument "more"; the program stands behind --`,
		"--list -- cat":               "--list plays nothing",
		"--only nothing -- cat":       "--only nothing: there is no such transcript; --list shows them",
		"--patience 0s -- cat":        "--patience 0s: must be more than 0",
		"--redis-addr a:1,b:2 -- cat": "one Redis server, and not with a cluster or sentinels",
	} {
		wantError(t, conformAs(t, nil, strings.Fields(line)...), 2, want)
	}
	wantError(t, conformAs(t, nil, "--", "no-such-program"), 1, `"no-such-program": executable file not found in $PATH`)
	wantError(t, conformAs(t, nil, "--redis-addr", "127.0.0.1:1", "--", "cat"), 1,
		"connection refused; check that Redis runs there")
}
