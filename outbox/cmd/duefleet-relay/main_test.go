package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programEnv is the environment variable that makes a process of this test binary the program.
const programEnv = "DUEFLEET_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
	}
	dbtest.Main(m)
}

// program prepares a run of the program with only the given environment.
func program(t *testing.T, log io.Writer, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{programEnv + "=1", "HOME=" + t.TempDir()}, env...)
	cmd.Stderr = log
	return cmd
}

// asURL returns the URL for the program: a DSN of MariaDB isn't one.
func asURL(url string) string {
	if dsn, ok := strings.CutPrefix(url, "root@tcp("); ok {
		return "mariadb://root@" + strings.Replace(dsn, ")", "", 1)
	}
	return url
}

// get returns the status and the body of a page of the admin server.
func get(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(check.Context(t), http.MethodGet, "http://"+addr+path, nil)
	check.OK(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	check.OK(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check.OK(t, err)
	return response.StatusCode, string(content)
}

// relay runs the program on a database of its own and the topic orders of a Redis, until the
// caller calls end. It returns the URL of the database, for the driver, and the address of the
// admin server.
func relay(t *testing.T, kind dbtest.Kind, redis *fixture.Redis) (url string, client *producer.Client, admin string,
	end func()) {
	t.Helper()
	redis.Serve(t, 2)
	dir, log := t.TempDir(), &check.Log{}
	config, database := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "database")
	check.OK(t, os.WriteFile(config, []byte("redis: {prefix: "+redis.Prefix+"}\n"), 0o600))
	url = dbtest.Database(t, kind)
	check.OK(t, os.WriteFile(database, []byte(asURL(url)+"\n"), 0o600))
	cmd := program(t, log, []string{"DUEFLEET_REDIS_ADDRS=" + redis.Addr},
		"--config", config, "--database-file", database, "--admin-listen", "127.0.0.1:0", "--migrate")
	check.OK(t, cmd.Start())
	line := regexp.MustCompile(`msg=relaying admin=(\S+)`)
	check.Until(t, "the relay", func() bool { return line.MatchString(log.String()) })
	client, err := producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	return url, client, line.FindStringSubmatch(log.String())[1], func() {
		t.Helper()
		check.OK(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the relay ended with %v:\n%s", err, log)
		}
	}
}

// TestTheProgram: it creates the tables, brings a row to Redis, sets a broken one aside, and
// shows both. Without its Redis it isn't ready. At SIGTERM it exits with 0.
func TestTheProgram(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		server := servertest.OwnRedis(t)
		redis := fixture.At(t, server.Addr(), "relayed")
		url, client, addr, end := relay(t, kind, redis)
		db := dbtest.Open(t, url)
		dbtest.Exec(t, db, `INSERT INTO duefleet_outbox (topic, id, delay_ms) VALUES ('orders', 'good', 3600000),
			('orders', 'bad', -1), ('unserved', 'waits', 0)`)
		check.Until(t, "the task", func() bool { _, err := client.Get(t.Context(), "orders", "good"); return err == nil })
		for _, want := range []string{`duefleet_outbox_stored_total{action="schedule"} 1`,
			`duefleet_outbox_stored_total{action="cancel"} 0`, "duefleet_outbox_failed_rows 1", "duefleet_outbox_waiting_rows 1",
		} {
			check.Until(t, want, func() bool {
				_, body := get(t, addr, "/metrics")
				return strings.Contains(body, want+"\n")
			})
		}
		dbtest.Exec(t, db, `UPDATE duefleet_outbox SET inserted_at = inserted_at - interval '1' hour WHERE failed IS NULL`)
		_, body := get(t, addr, "/metrics")
		age := regexp.MustCompile(`(?m)^duefleet_outbox_oldest_waiting_seconds 3[67]\d\d(\.\d+)?$`)
		check.Equal(t, "the age of the oldest row is an hour", age.MatchString(body), true)

		status, body := get(t, addr, "/readyz")
		check.Equal(t, "/readyz", fmt.Sprint(status, " ", body), "200 ready\ndatabase: ok\nredis: ok\n")
		check.OK(t, server.Kill())
		status, body = get(t, addr, "/readyz")
		check.Equal(t, "the status without Redis", status, http.StatusServiceUnavailable)
		check.Equal(t, "the first line", strings.SplitN(body, ": down (required): ", 2)[0], "not ready\ndatabase: ok\nredis")
		end()
	})
}

// TestWhatTheProgramNeeds: each mistake has one line, and no line has the password.
func TestWhatTheProgramNeeds(t *testing.T) {
	t.Parallel()
	const secret = "hidden-word"
	url, mariadb := dbtest.Database(t, dbtest.PostgreSQL), dbtest.Database(t, dbtest.MariaDB)
	env := func(value string) []string { return []string{databaseVar + "=" + value} }
	for name, run := range map[string]struct {
		env  []string
		args []string
		code int
		want string
	}{
		"no database": {nil, nil, 2, "no database: set DUEFLEET_OUTBOX_DATABASE or --database-file to its URL"},
		"both":        {env(url), []string{"--database-file", "f"}, 2, "only one may be given"},
		"no file":     {nil, []string{"--database-file", "f"}, 1, "read --database-file: open f: no such file"},
		"no URL":      {env("postgres://u:" + secret + "@h:port/"), nil, 1, "DUEFLEET_OUTBOX_DATABASE: cannot parse"},
		"no URL of MariaDB": {env("mysql://u:" + secret + "/@h/"), nil, 1,
			"DUEFLEET_OUTBOX_DATABASE: cannot parse the URL; want mariadb://user:password@host:port/name"},
		"parameter": {env("mariadb://u:" + secret + "@h/shop?tls=" + "none"), nil, 1, "DUEFLEET_OUTBOX_DATABASE: "},
		"password": {env(strings.Replace(asURL(mariadb), "root@", "root:"+secret+"@", 1)), []string{"--migrate"}, 1,
			"Access denied for user 'root'"},
		"no table in MariaDB": {env(strings.Replace(asURL(mariadb), "mariadb:", "mysql:", 1)),
			[]string{"--admin-listen", "127.0.0.1:0"}, 1, outbox.ErrNoTable.Error()},
		"poll":     {env(url), []string{"--poll", "0s"}, 2, "--poll: must be above 0"},
		"batch":    {env(url), []string{"--batch", "0"}, 2, "--batch: must be 1 or more"},
		"no table": {env(url), []string{"--admin-listen", "127.0.0.1:0"}, 1, outbox.ErrNoTable.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &check.Log{}
			cmd := program(t, log, run.env, run.args...)
			check.OK(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			_ = check.Receive(t, "the end", ended)
			check.Equal(t, "the exit code", cmd.ProcessState.ExitCode(), run.code)
			text := log.String()
			check.Equal(t, text, strings.Contains(text, run.want) && !strings.Contains(text, secret), true)
		})
	}
}
