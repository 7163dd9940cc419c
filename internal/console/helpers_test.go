package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/crypto/bcrypt"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programsDir is the folder of the programs that build makes.
var programsDir string

var build = sync.OnceValues(func() (fleet.Binaries, error) {
	return fleet.Build(context.Background(), fleet.BuildConfig{Dir: programsDir})
})

func TestMain(m *testing.M) {
	logging.Disable() // as the program does
	var err error
	if programsDir, err = os.MkdirTemp("", "duefleet-console-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := servertest.Leaks(m)
	_ = os.RemoveAll(programsDir)
	os.Exit(code)
}

// scannerProgram returns the path of the program scanner.
func scannerProgram(t *testing.T) string {
	t.Helper()
	programs, err := build()
	check.OK(t, err)
	return programs.Scanner
}

// site is a console that a test serves.
type site struct {
	t       testing.TB
	console *Console
	url     string // without a slash at its end
	log     *check.Log
	end     func()
	client  *http.Client
}

// settings returns the default settings with a free port.
func settings() config.Console {
	s := config.Defaults().Console
	s.Listen = "127.0.0.1:0"
	return s
}

// serve starts a console over a store.
func serve(t testing.TB, store *shard.Store, cfg Config) *site {
	t.Helper()
	s := &site{t: t, log: &check.Log{}, client: &http.Client{Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	cfg.Store, cfg.Log, cfg.Version = store, slog.New(slog.NewTextHandler(s.log, nil)), "v0"
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	var err error
	s.console, err = New(cfg)
	check.OK(t, err)
	check.OK(t, s.console.Listen(t.Context()))
	s.url = strings.TrimSuffix(s.console.URL(), "/")
	s.end = check.Background(t, "the console", s.console.Run)
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// ask sends a request with headers, names and values in turn.
func (s *site) ask(method, path string, form url.Values, headers ...string) (status int, body string, h http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	check.OK(s.t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	check.OK(s.t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	check.OK(s.t, err)
	return resp.StatusCode, string(content), resp.Header
}

// events opens a stream and returns the data of its events, line after line.
func (s *site) events(ctx context.Context, path string, headers ...string) <-chan string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	check.OK(s.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req) //nolint:bodyclose // the goroutine below closes it
	check.OK(s.t, err)
	check.Equal(s.t, "status", resp.StatusCode, http.StatusOK)
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// usersFile writes accounts, each with its name as password, and a role: "" for none.
func usersFile(t *testing.T, roles map[string]string) string {
	t.Helper()
	var text strings.Builder
	for name, role := range roles {
		hash, err := bcrypt.GenerateFromPassword([]byte(name), bcrypt.MinCost)
		check.OK(t, err)
		fmt.Fprintf(&text, "%s:%s%s\n", name, hash, role)
	}
	path := filepath.Join(t.TempDir(), "users")
	check.OK(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// signIn returns the headers of a session.
func (s *site) signIn(form url.Values) (headers []string) {
	s.t.Helper()
	status, body, h := s.ask(http.MethodPost, "/sign-in", form)
	if status != http.StatusSeeOther {
		s.t.Fatalf("sign-in: %d %s", status, body)
	}
	cookie := h.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		s.t.Errorf("cookie %s", cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	return []string{"Cookie", value}
}
