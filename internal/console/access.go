package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
)

const (
	// cookieName names the cookie of a session.
	cookieName = "duefleet_console"
	// sessionLength is how long a sign-in lasts.
	sessionLength = 12 * time.Hour
	// maxSessions bounds the memory for sessions.
	maxSessions = 10_000
	// leastToken is the least length of a token, in bytes.
	leastToken = 16
	// checksAtOnce bounds the processors that checks of passwords take.
	checksAtOnce = 2
)

// identity names the sender of a request.
type identity struct {
	Name string
	Role role
	// SignedIn is true if the user can sign out.
	SignedIn bool
}

// Operates reports whether the user may act.
func (i identity) Operates() bool { return i.Role == operate }

// access decides who may do what. It is safe for concurrent use.
type access struct {
	users    *users // nil: none
	token    func() string
	header   string // that an authenticating proxy sets; "": none
	trusted  role   // of users that only the proxy knows
	readOnly bool
	checks   chan struct{}

	mu       sync.Mutex
	sessions map[string]session
}

// session is one sign-in.
type session struct {
	name string
	// secret is the hash or token that signed in. Once it changes, the session is over.
	secret string
	ends   time.Time
}

// newAccess returns an error if the console would serve other machines without knowing who
// they are.
func newAccess(cfg config.Console, readOnly bool, log *slog.Logger) (*access, error) {
	a := &access{token: connect.ConsoleToken(cfg, log), header: cfg.TrustHeader, trusted: role(cfg.TrustRole),
		readOnly: readOnly, checks: make(chan struct{}, checksAtOnce), sessions: map[string]session{}}
	if token := a.token(); token != "" && len(token) < leastToken {
		return nil, fmt.Errorf("console.token: must have %d bytes or more", leastToken)
	}
	if cfg.UsersFile != "" {
		var err error
		if a.users, err = openUsers(cfg.UsersFile, log); err != nil {
			return nil, fmt.Errorf("console.users_file: %w", err)
		}
	}
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("console.listen: %w", err)
	}
	if a.open() && !loopback(host) {
		return nil, errors.New("console.listen " + cfg.Listen + " can be reached from other machines: set " +
			"console.users_file, console.token or console.trust_header, or listen at 127.0.0.1")
	}
	return a, nil
}

// loopback reports whether only this machine reaches a host's name or address.
func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// open reports whether everybody on this machine is an operator.
func (a *access) open() bool { return a.users == nil && a.token() == "" && a.header == "" }

// form reports whether users can sign in with a form.
func (a *access) form() bool { return a.users != nil || a.token() != "" }

// identify returns who sends a request; false if nobody knows.
func (a *access) identify(r *http.Request) (identity, bool) {
	who, known := a.claims(r)
	if a.readOnly {
		who.Role = view
	}
	return who, known
}

func (a *access) claims(r *http.Request) (identity, bool) {
	if a.open() {
		return identity{Name: "local", Role: operate}, true
	}
	if name := r.Header.Get(a.header); a.header != "" && name != "" {
		if a.users != nil {
			if u, there := a.users.find(r.Context(), name); there {
				return identity{Name: name, Role: u.role}, true
			}
		}
		return identity{Name: name, Role: a.trusted}, true
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return identity{Name: "token", Role: operate}, a.isToken(bearer)
	}
	return a.bySession(r)
}

func (a *access) isToken(text string) bool {
	token := a.token()
	return token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(text)) == 1
}

func (a *access) bySession(r *http.Request) (identity, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return identity{}, false
	}
	a.mu.Lock()
	s, there := a.sessions[cookie.Value]
	a.mu.Unlock()
	if !there || time.Now().After(s.ends) {
		return identity{}, false
	}
	if s.name == "" {
		return identity{Name: "token", Role: operate, SignedIn: true}, s.secret == a.token()
	}
	u, there := a.users.find(r.Context(), s.name)
	return identity{Name: s.name, Role: u.role, SignedIn: true}, there && u.hash == s.secret
}

// signIn returns a session for a user and password, or for a token. It returns false if they
// are wrong.
func (a *access) signIn(ctx context.Context, name, password string) (session, bool) {
	select {
	case a.checks <- struct{}{}:
		defer func() { <-a.checks }()
	case <-ctx.Done():
		return session{}, false
	}
	s := session{name: name, ends: time.Now().Add(sessionLength)}
	if name == "" {
		s.secret = password
		return s, a.isToken(password)
	}
	if a.users == nil {
		return s, false
	}
	u, right := a.users.check(ctx, name, password)
	s.secret = u.hash
	return s, right
}

// begin keeps a session and returns its cookie. secure is true if the browser uses TLS.
func (a *access) begin(s session, secure bool) *http.Cookie {
	id := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	for old, other := range a.sessions {
		if time.Now().After(other.ends) || len(a.sessions) >= maxSessions {
			delete(a.sessions, old)
		}
	}
	a.sessions[id] = s
	return cookie(id, int(sessionLength.Seconds()), secure)
}

// end forgets the session of a request, and returns the cookie that removes the browser's.
func (a *access) end(r *http.Request) *http.Cookie {
	if c, err := r.Cookie(cookieName); err == nil {
		a.mu.Lock()
		delete(a.sessions, c.Value)
		a.mu.Unlock()
	}
	return cookie("", -1, encrypted(r))
}

func cookie(value string, seconds int, secure bool) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: seconds, Secure: secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
}

// encrypted reports whether the browser uses TLS, here or at a proxy.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}
