package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const testToken = "0123456789abcdef0123456789abcdef"

// served is a running `producer serve`.
type served struct {
	cmd         *exec.Cmd
	log         *check.Log
	addr, admin string
}

// serve starts the server with a token for client shop, and waits until it listens.
func (c *sandbox) serve(args ...string) *served {
	c.t.Helper()
	const all = "schedule, get, reschedule, cancel"
	tokens := fmt.Sprintf("clients: [{name: shop, sha256: [%x], topics: [orders], verbs: [%s]}]",
		sha256.Sum256([]byte(testToken)), all)
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--tokens",
		writeFile(c.t, "tokens.yaml", tokens)}, args...)
	s := &served{cmd: command(c.t, []string{"DUEFLEET_LOG_LEVEL=debug"}, c.args(args...)...), log: &check.Log{}}
	s.cmd.Stderr = s.log
	check.OK(c.t, s.cmd.Start())
	c.t.Cleanup(func() { _, _ = s.cmd.Process.Kill(), s.cmd.Wait() })
	line := regexp.MustCompile(`msg=serving listen=(\S+) admin=(\S+)`)
	check.Until(c.t, "the server", func() bool { return line.MatchString(s.log.String()) })
	found := line.FindStringSubmatch(s.log.String())
	s.addr, s.admin = found[1], found[2]
	return s
}

// stop sends SIGTERM, and wants the exit code 0.
func (s *served) stop(t *testing.T) {
	t.Helper()
	check.OK(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v:\n%s", err, s.log)
	}
}

// TestTheExamplesOfThePage: each curl command of docs/http.md works, and its answer has
// the fields that the page shows.
func TestTheExamplesOfThePage(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	s := c.serve()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	check.OK(t, err)
	blocks := regexp.MustCompile("(?s)```bash\n(.*?)```(?:\n\n```json\n(.*?)```)?").FindAllStringSubmatch(string(page), -1)
	check.Equal(t, "examples", len(blocks), 5)
	for _, block := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", block[1])
		cmd.Env = append(os.Environ(), "URL=http://"+s.addr, "TOKEN="+testToken)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v: %s", block[1], err, out)
		}
		for line := range strings.Lines(string(out)) {
			var got, want map[string]any
			check.OK(t, json.Unmarshal([]byte(line), &got))
			if got["code"] != nil || got["topic"] != "orders" {
				t.Errorf("%s\n%s", block[1], line)
			}
			if block[2] == "" {
				continue
			}
			check.OK(t, json.Unmarshal([]byte(block[2]), &want))
			if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
				t.Errorf("the answer has %v, the page %v", a, b)
			}
		}
	}
	check.Equal(t, "payload", c.payload("o-1"), `{"order":1}`)
	check.Equal(t, "stored", c.stored(), 2)
	s.stop(t)
	for _, forbidden := range []string{testToken, `{"order"`, "order:1"} {
		if strings.Contains(s.log.String(), forbidden) {
			t.Errorf("the log has %q:\n%s", forbidden, s.log)
		}
	}
}

// TestServeIsReadyWhileRedisAnswers, and its metrics count requests.
func TestServeIsReadyWhileRedisAnswers(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	c := sandboxAt(t, server.Addr(), "duefleet")
	s := c.serve()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(url string) (status int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		check.OK(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := client.Do(req)
		check.OK(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		check.OK(t, err)
		return resp.StatusCode, string(text)
	}
	ready := func() int { status, _ := get("http://" + s.admin + "/readyz"); return status }
	check.Until(t, "readiness", func() bool { return ready() == 200 })
	status, _ := get("http://" + s.addr + "/v1/topics/orders/tasks/a")
	check.Equal(t, "status", status, 404)
	_, metrics := get("http://" + s.admin + "/metrics")
	if want := `duefleet_http_requests_total{client="shop",status="404",verb="get"} 1`; !strings.Contains(metrics, want) {
		t.Errorf("metrics lack %s", want)
	}
	check.OK(t, server.Pause())
	check.Until(t, "the outage", func() bool { return ready() == 503 })
	check.OK(t, server.Resume())
	check.Until(t, "readiness", func() bool { return ready() == 200 })
	s.stop(t)
}

// TestServeTakesANewCertificate without a restart.
func TestServeTakesANewCertificate(t *testing.T) {
	t.Parallel()
	servertest.TakesNewCertificate(t, func(cert, key string) string {
		return "https://" + newSandbox(t).serve("--tls-cert", cert, "--tls-key", key).addr + "/"
	})
}

// TestServeRefusesWrongFlags with one line that names the flag.
func TestServeRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--listen :9340":                        "--listen :9340: other machines can reach it, so --tokens is needed",
		"--listen 0.0.0.0:1":                    "--tokens is needed",
		"--listen 9340":                         "--listen \"9340\": must be host:port",
		"--tls-cert a":                          "--tls-cert and --tls-key",
		"--timeout 0":                           "--timeout 0s: must be above 0 and at most 50s",
		"--timeout 51s":                         "--timeout 51s: must be above 0 and at most 50s, because",
		"--max-connections 0":                   "--max-connections: must be 1 or more",
		"--max-connections -1 --listen [::1]:0": "--max-connections: must be 1 or more",
	} {
		cmd := command(t, nil, append([]string{"serve"}, strings.Fields(args)...)...)
		wantError(t, finish(t, cmd), 2, want)
	}
	cmd := command(t, nil, "serve", "--listen", "127.0.0.1:0", "--tokens", filepath.Join(t.TempDir(), "none.yaml"))
	wantError(t, finish(t, cmd), 1, "none.yaml: no such file")
}

// TestAKilledServerAndTheBatchAgain: each answered line is stored after the server was
// killed in the middle. After the same batch was sent again, each task is stored once.
func TestAKilledServerAndTheBatchAgain(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	s := c.serve()
	const lines = 20_000
	body := &strings.Builder{}
	for n := range lines {
		fmt.Fprintf(body, `{"verb":"schedule","id":"t-%d","in":"1h","payload":"x"}`+"\n", n)
	}
	post := func(s *served, answered func(n int)) (ids []string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+"/v1/topics/orders/tasks",
			strings.NewReader(body.String()))
		check.OK(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken)
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		for dec := json.NewDecoder(resp.Body); ; answered(len(ids)) {
			var answer struct {
				ID     string
				Status int
			}
			if err := dec.Decode(&answer); err != nil {
				return ids, err
			}
			check.Equal(t, "status", answer.Status, 200)
			ids = append(ids, answer.ID)
		}
	}
	ids, err := post(s, func(n int) {
		if n == lines/10 {
			check.OK(t, s.cmd.Process.Kill())
		}
	})
	if errors.Is(err, io.EOF) || len(ids) < lines/10 || len(ids) == lines {
		t.Fatalf("%d answers, then %v; want a cut", len(ids), err)
	}
	for _, id := range ids {
		shard := slices.ContainsFunc([]int{0, 1, 2}, func(shard int) bool {
			there, err := c.rdb.HExists(t.Context(), fmt.Sprintf("%s:task:{orders:%d}", c.prefix, shard), id).Result()
			check.OK(t, err)
			return there
		})
		check.Equal(t, id+" stored", shard, true)
	}
	s = c.serve()
	ids, err = post(s, func(int) {})
	check.Equal(t, "the end", err, io.EOF)
	check.Equal(t, "answers", len(ids), lines)
	check.Equal(t, "stored", c.stored(), lines)
	s.stop(t)
}
