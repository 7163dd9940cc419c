package deploy_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// freeConsole are variables that make a console listen at free ports of this machine.
func freeConsole(more ...string) []string {
	return append([]string{"DUEFLEET_CONSOLE_LISTEN=127.0.0.1:0", "DUEFLEET_CONSOLE_ADMIN_LISTEN=127.0.0.1:0"}, more...)
}

// visitor is somebody who signed in to a console.
type visitor struct {
	t      *testing.T
	at     string
	client *http.Client
}

func signIn(t *testing.T, at, user, password string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	check.OK(t, err)
	v := &visitor{t: t, at: at, client: &http.Client{Transport: &http.Transport{}, Jar: jar}}
	t.Cleanup(v.client.CloseIdleConnections)
	v.posts("/sign-in", "user", user, "password", password)
	return v
}

// sees checks that a page has one text and not another.
func (v *visitor) sees(path, want, not string) {
	v.t.Helper()
	resp, err := v.client.Get(v.at + path)
	check.OK(v.t, err)
	v.holds(path, resp, want, not)
}

// posts sends a form, names and values in turn.
func (v *visitor) posts(path string, values ...string) {
	v.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	resp, err := v.client.PostForm(v.at+path, form)
	check.OK(v.t, err)
	v.holds(path, resp, "", "NOPERM")
}

func (v *visitor) holds(path string, resp *http.Response, want, not string) {
	v.t.Helper()
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	check.OK(v.t, err)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), want) || strings.Contains(string(page), not) {
		v.t.Errorf("%s: status %d, want %q and not %q in\n%s", path, resp.StatusCode, want, not, page)
	}
}

// TestChartOfTheConsoleServes: the container's command serves with the chart's
// configuration, the files of its Secrets, and a user with the rights of operator.acl. The
// users of the Secret sign in, and nobody sees a page before.
func TestChartOfTheConsoleServes(t *testing.T) {
	t.Parallel()
	server := servertest.RedisWithUsers(t, filepath.Join(root, "deploy/redis"))
	fixture.At(t, server.Addr(), "duefleet").Serve(t, 4)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	check.OK(t, err)
	args := containerArgs(t, "console", server.Addr(), "duefleet", map[string]string{"redis-username": "duefleet-operator",
		"redis-password": "operator", "users": "ann:" + string(hash) + ":operate\n"})
	addr := startServer(t, programs.Scanner, args, freeConsole()...)
	at := "http://" + addr
	check.Equal(t, "before the sign-in", status(t, at+"/", ""), http.StatusUnauthorized)
	ann := signIn(t, at, "ann", "secret")
	for path, want := range map[string]string{
		"/": `id="topic-orders"`, "/topic/orders": "What falls due", "/parked": "Parked", "/tasks?topic=orders": "Tasks",
		"/fleet": "Fleet", "/topic/orders/pause": "Pause",
	} {
		ann.sees(path, want, "NOPERM")
	}
	ann.posts("/topic/orders/pause", "reason", "a test")
	ann.sees("/topic/orders", "Paused in Redis: a test", "NOPERM")
	ann.posts("/topic/orders/resume")
	log, err := fixture.At(t, server.Addr(), "duefleet").Client.ACLLog(t.Context(), 10).Result()
	check.OK(t, err)
	check.Equal(t, "what Redis refused", len(log), 0)
}

// TestComposeServesTheConsole: the command of service console serves with the token in its
// environment.
func TestComposeServesTheConsole(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	s := composeService(t, "console")
	token := s.Environment["DUEFLEET_CONSOLE_TOKEN"]
	addr := startServer(t, programs.Scanner, s.Command, freeConsole("DUEFLEET_REDIS_ADDRS="+r.Addr,
		"DUEFLEET_REDIS_PREFIX="+r.Prefix, "DUEFLEET_CONSOLE_TOKEN="+token)...)
	check.Equal(t, "with the token", status(t, "http://"+addr+"/", token), http.StatusOK)
	check.Equal(t, "with another one", status(t, "http://"+addr+"/", token+"x"), http.StatusUnauthorized)
}
