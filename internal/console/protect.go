package console

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// policy lets a page load only what this server sends. No script and no style is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// whoKey is the key of a request's identity in its context.
type whoKey struct{}

func whoOf(r *http.Request) identity {
	who, _ := r.Context().Value(whoKey{}).(identity)
	return who
}

// protect refuses what the user may not do before next sees it.
func (c *Console) protect(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.log.WarnContext(r.Context(), "request from another site refused", "path", r.URL.Path, "remote", r.RemoteAddr)
		http.Error(w, "this request comes from another site", http.StatusForbidden)
	}))
	checked := origins.Handler(c.authorize(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if c.access.open() && !localHost(r.Host) {
			// else a page of another site could reach this server under a name of its own
			http.Error(w, "without sign-in, the console answers only as localhost", http.StatusMisdirectedRequest)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return loopback(host)
}

// authorize requires a user, and the role operate for everything but reading. It logs each
// action.
func (c *Console) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == signInPath || strings.HasPrefix(r.URL.Path, "/assets/") {
			next.ServeHTTP(w, r)
			return
		}
		who, known := c.access.identify(r)
		if !known {
			c.turnAway(w, r)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), whoKey{}, who))
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if who.Operates() || r.URL.Path == signOutPath {
			next.ServeHTTP(seen, r)
		} else {
			http.Error(seen, "this needs the role operate; "+who.Name+" has "+string(who.Role), http.StatusForbidden)
		}
		c.log.InfoContext(r.Context(), "action", "user", who.Name, "role", who.Role, "method", r.Method, "path",
			r.URL.Path, "status", seen.status, "remote", r.RemoteAddr)
	})
}

// turnAway sends a browser to the form, and refuses everything else.
func (c *Console) turnAway(w http.ResponseWriter, r *http.Request) {
	page := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
	if page && c.access.form() {
		http.Redirect(w, r, signInPath+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	http.Error(w, "sign in first", http.StatusUnauthorized)
}

// statusWriter knows the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
