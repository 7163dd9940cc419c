package console

import (
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

const token = "0123456789abcdef"

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestBeyondLoopbackUsersAreNeeded: without any way to sign in, New refuses every address
// that other machines may reach.
func TestBeyondLoopbackUsersAreNeeded(t *testing.T) {
	t.Parallel()
	store := fixture.New(t).Store
	file := usersFile(t, map[string]string{"ann": ""})
	for _, c := range []struct {
		cfg  config.Console
		want string // "" if it starts
	}{
		{config.Console{Listen: "127.0.0.1:0"}, ""},
		{config.Console{Listen: "localhost:0"}, ""},
		{config.Console{Listen: "[::1]:0"}, ""},
		{config.Console{Listen: ":0"}, "can be reached from other machines"},
		{config.Console{Listen: "0.0.0.0:0"}, "can be reached from other machines"},
		{config.Console{Listen: "[::]:0"}, "can be reached from other machines"},
		{config.Console{Listen: "console.example:0"}, "can be reached from other machines"},
		{config.Console{Listen: ":0", UsersFile: file}, ""},
		{config.Console{Listen: ":0", Token: token}, ""},
		{config.Console{Listen: ":0", TrustHeader: "X-Forwarded-User"}, ""},
		{config.Console{Listen: ":0", Token: "short"}, "must have 16 bytes"},
		{config.Console{Listen: ":0", UsersFile: file + "-missing"}, "no such file"},
		{config.Console{Listen: ":0", UsersFile: writeFile(t, "ann:secret\n")}, "line 1: must have a bcrypt hash"},
		{config.Console{Listen: ":0", UsersFile: writeFile(t, "# none\n")}, "must have a line"},
	} {
		_, err := New(Config{Settings: c.cfg, Store: store, Registerer: prometheus.NewRegistry(),
			Log: slog.New(slog.DiscardHandler)})
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%v shows what may be a password", err)
		}
	}
}

// TestRoles: a viewer looks and may not act. An operator may. --read-only refuses both.
func TestRoles(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.UsersFile = usersFile(t, map[string]string{"ann": "", "bob": ":operate"})
	cfg.Token = token
	store := fixture.New(t).Store
	for _, readOnly := range []bool{false, true} {
		s := serve(t, store, Config{Settings: cfg, ReadOnly: readOnly})
		acts := http.StatusNotFound // there is no such action, but the operator may try
		if readOnly {
			acts = http.StatusForbidden
		}
		for name, want := range map[string]int{"ann": http.StatusForbidden, "bob": acts} {
			session := s.signIn(url.Values{"user": {name}, "password": {name}, "next": {"/?q=a"}})
			if status, page, _ := s.ask(http.MethodGet, "/", nil, session...); status != http.StatusOK ||
				!strings.Contains(page, name) {
				t.Errorf("%s: %d %s", name, status, page)
			}
			if status, body, _ := s.ask(http.MethodPost, "/act", url.Values{}, session...); status != want {
				t.Errorf("%s acts, read-only %t: %d %s", name, readOnly, status, body)
			}
			if !strings.Contains(s.log.String(), "msg=action user="+name) {
				t.Errorf("the log lacks what %s did:\n%s", name, s.log)
			}
			if status, _, _ := s.ask(http.MethodPost, "/sign-out", url.Values{}, session...); status != http.StatusSeeOther {
				t.Errorf("sign-out of %s: %d", name, status)
			}
			if status, _, _ := s.ask(http.MethodGet, "/", nil, session...); status != http.StatusUnauthorized {
				t.Errorf("%s after the sign-out: %d", name, status)
			}
		}
		if status, _, _ := s.ask(http.MethodPost, "/act", nil, "Authorization", "Bearer "+token); status != acts {
			t.Errorf("the token acts, read-only %t: %d", readOnly, status)
		}
		s.signIn(url.Values{"token": {token}})
	}
}

// TestWithoutSignInNothingIsShown: a browser gets the form, everything else 401.
func TestWithoutSignInNothingIsShown(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.UsersFile = usersFile(t, map[string]string{"ann": ""})
	r := fixture.New(t)
	r.Serve(t, 1)
	s := serve(t, r.Store, Config{Settings: cfg})
	status, _, h := s.ask(http.MethodGet, "/?q=a", nil, "Accept", "text/html")
	if status != http.StatusSeeOther || h.Get("Location") != "/sign-in?next=%2F%3Fq%3Da" {
		t.Errorf("a browser got %d %s", status, h.Get("Location"))
	}
	for _, path := range []string{"/", "/stream/", "/nothing"} {
		if status, body, _ := s.ask(http.MethodGet, path, nil); status != http.StatusUnauthorized ||
			strings.Contains(body, "orders") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, form := range []url.Values{{}, {"user": {"ann"}, "password": {"bob"}}, {"user": {"bob"}, "password": {"ann"}},
		{"token": {"x"}}} {
		if status, _, h := s.ask(http.MethodPost, "/sign-in", form); status != http.StatusUnauthorized ||
			h["Set-Cookie"] != nil {
			t.Errorf("%v: %d", form, status)
		}
	}
	for _, evil := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "evil"} {
		_, _, h := s.ask(http.MethodPost, "/sign-in", url.Values{"user": {"ann"}, "password": {"ann"}, "next": {evil}})
		check.Equal(t, "redirect for "+evil, h.Get("Location"), "/")
	}
	session := s.signIn(url.Values{"user": {"ann"}, "password": {"ann"}})
	check.OK(t, os.Rename(usersFile(t, map[string]string{"bob": ""}), cfg.UsersFile))
	if status, _, _ := s.ask(http.MethodGet, "/", nil, session...); status != http.StatusUnauthorized {
		t.Errorf("ann isn't in the file any more: %d", status)
	}
}

// TestAProxyNamesUsers: its header counts. The users file gives their roles, else trust_role.
func TestAProxyNamesUsers(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.TrustHeader = "X-Forwarded-User"
	cfg.UsersFile = usersFile(t, map[string]string{"bob": ":operate"})
	s := serve(t, fixture.New(t).Store, Config{Settings: cfg})
	for name, want := range map[string]int{"": http.StatusUnauthorized, "ann": http.StatusForbidden,
		"bob": http.StatusNotFound} {
		if status, _, _ := s.ask(http.MethodPost, "/act", nil, "X-Forwarded-User", name); status != want {
			t.Errorf("%q: %d, want %d", name, status, want)
		}
	}
}

// TestOtherSitesCanDoNothing: a forged request is refused, and a name of another site that
// leads to this machine too.
func TestOtherSitesCanDoNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, fixture.New(t).Store, Config{Settings: settings()})
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		for _, path := range []string{"/act", "/sign-in", "/sign-out"} {
			if status, _, _ := s.ask(http.MethodPost, path, url.Values{}, headers...); status != http.StatusForbidden {
				t.Errorf("%s with %v: %d", path, headers, status)
			}
		}
	}
	if status, _, _ := s.ask(http.MethodPost, "/act", url.Values{}, "Sec-Fetch-Site", "same-origin"); status !=
		http.StatusNotFound {
		t.Errorf("from this site: %d", status)
	}
	if status, _, _ := s.ask(http.MethodGet, "/", nil, "Host", "evil.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("under another name: %d", status)
	}
}

// TestPagesMayLoadOnlyWhatTheConsoleSends: the policy is on every answer, and no page needs
// an exception from it.
func TestPagesMayLoadOnlyWhatTheConsoleSends(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.Token = token
	s := serve(t, fixture.New(t).Store, Config{Settings: cfg})
	for _, path := range []string{"/", "/sign-in", "/nothing"} {
		_, page, h := s.ask(http.MethodGet, path, nil, "Authorization", "Bearer "+token)
		got := h.Get("Content-Security-Policy")
		if !strings.Contains(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
			t.Errorf("%s: policy %q", path, got)
		}
		for _, inline := range []string{"<script>", "<style", " style=", " onclick=", "javascript:", token} {
			if strings.Contains(page, inline) {
				t.Errorf("%s has %q", path, inline)
			}
		}
	}
	for _, file := range []string{"console.css", "console.js", "vendor/htmx.min.js", "vendor/sse.min.js",
		"vendor/idiomorph-ext.min.js", "icon.svg"} {
		if status, _, h := s.ask(http.MethodGet, s.console.assets+"/"+file, nil); status != http.StatusOK ||
			!strings.Contains(h.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", file, status, h)
		}
	}
}
