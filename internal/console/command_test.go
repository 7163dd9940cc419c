package console

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// command is a run of scanner console.
type command struct {
	*site
	cmd *exec.Cmd
	log *check.Log
}

// startCommand runs scanner console with a configuration of Redis: the fields of its section.
func startCommand(t *testing.T, redis string) command {
	t.Helper()
	program := scannerProgram(t)
	config := writeFile(t, "redis: {"+redis+"}\nconsole: {listen: '127.0.0.1:0', admin_listen: '127.0.0.1:0'}\n")
	c := command{cmd: exec.Command(program, "console", "--config", config), log: &check.Log{}}
	out, err := c.cmd.StdoutPipe()
	check.OK(t, err)
	c.cmd.Stderr = c.log
	check.OK(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check.OK(t, err)
	at, found := strings.CutPrefix(strings.TrimSpace(line), "console: ")
	if !found {
		t.Fatalf("it printed %q", line)
	}
	c.site = &site{t: t, url: strings.TrimSuffix(at, "/"), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// examined has the doctor examine the fleet, and returns its page with the findings.
func (c command) examined() (page string) {
	c.t.Helper()
	c.ask(http.MethodPost, "/doctor", url.Values{})
	check.Until(c.t, "what scanner doctor finds", func() bool {
		_, page, _ = c.ask(http.MethodGet, "/doctor", nil)
		return strings.Contains(page, "<code>redis.")
	})
	return page
}

// TestTheLeastRights: with the user of operator.acl, the doctor examines and says which right
// it lacks. Without a right that a page or an action needs, the page names it.
func TestTheLeastRights(t *testing.T) {
	t.Parallel()
	server := servertest.RedisWithUsers(t, "../../deploy/redis")
	r := fixture.At(t, server.Addr(), "duefleet")
	r.Serve(t, 1)
	c := startCommand(t, fmt.Sprintf("addrs: ['%s'], username: duefleet-operator, password: operator", server.Addr()))
	contains(t, c.examined(), "duefleet-operator has the rights of an operator", "<code>redis.users</code>",
		"that takes the right &#43;config|get")
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a")...)
	without := func(command string) {
		t.Helper()
		check.OK(t, r.Client.Do(t.Context(), "ACL", "SETUSER", "duefleet-operator", "-"+command).Err())
	}
	without("zcount")
	_, page, _ := c.ask(http.MethodGet, "/topic/orders", nil)
	contains(t, page, "Redis can't be read", "no permissions to run the &#39;zcount&#39; command")
	without("hset")
	status, page, _ := c.ask(http.MethodPost, "/topic/orders/pause", url.Values{})
	check.Equal(t, "status", status, http.StatusBadGateway)
	contains(t, page, "no permissions to run the 'hset' command")
	_, page, _ = c.ask(http.MethodPost, "/tasks/cancel?topic=orders&all=1", url.Values{})
	change := regexp.MustCompile(`/stream(/change/[^"]+)"`).FindStringSubmatch(page)
	if change == nil {
		t.Fatalf("no change began:\n%s", page)
	}
	contains(t, c.ended(change[1]), "no permissions to run the &#39;hset&#39; command",
		"give the user the rights of deploy/redis/operator.acl")
}

// TestTheCommandEndsWithStreamsOpen: scanner console prints its address, serves, examines as
// scanner doctor does, and ends within two seconds of SIGTERM.
func TestTheCommandEndsWithStreamsOpen(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	s := startCommand(t, fmt.Sprintf("addrs: ['%s'], prefix: '%s'", r.Addr, r.Prefix))
	_, page, _ := s.ask(http.MethodGet, "/", nil)
	contains(t, page, `id="topic-orders"`)
	check.Receive(t, "an event", s.events(t.Context(), "/stream/"))
	page = s.examined()
	contains(t, page, "checks found something wrong", "<code>config</code>")
	admin := regexp.MustCompile(`admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(s.log.String())
	if admin == nil {
		t.Fatalf("the log has no address of the metrics:\n%s", s.log)
	}
	health := &site{t: t, url: "http://" + admin[1], client: s.client}
	for path, want := range map[string]string{"/livez": "", "/readyz": "", "/metrics": "process_start_time_seconds"} {
		status, body, _ := health.ask(http.MethodGet, path, nil)
		check.Equal(t, path, status, http.StatusOK)
		contains(t, body, want)
	}
	start := time.Now()
	check.OK(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, s.log)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}
