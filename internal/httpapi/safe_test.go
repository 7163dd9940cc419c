package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
)

func bearer(token string) string { return "Authorization: Bearer " + token }

// TestATokenPermitsItsTopicsAndVerbs, and nothing else. No log line has a token or a
// payload.
func TestATokenPermitsItsTopicsAndVerbs(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *Config) { c.Tokens = tokensFile(t) })
	for name, headers := range map[string][]string{
		"none": nil, "unknown": {bearer(shopToken + "x")}, "a beginning": {bearer(shopToken[:36])}, "empty": {bearer("")},
		"another scheme": {"Authorization: Basic " + shopToken}, "its hash": {bearer(strings.Repeat("0", 64))},
	} {
		a := d.do("PUT", path("a")+"?in=1h", secret, headers...)
		a.want(t, name, 401, "unauthorized")
		check.Equal(t, "field", fmt.Sprint(a.body["field"], ": ", a.body["rule"]),
			"Authorization: must be Bearer and a known token")
		check.Equal(t, "challenge", a.header.Get("WWW-Authenticate"), `Bearer realm="duefleet"`)
	}
	d.do("GET", "/elsewhere", "").want(t, "a path without a token", 401, "unauthorized")
	d.do("PUT", path("a")+"?in=1h", secret, bearer(shopToken)).want(t, "shop", 200, nil)
	d.do("PUT", path("b")+"?in=1h", secret, bearer(mailToken)).want(t, "another topic", 403, "forbidden")
	d.do("PUT", "/v1/topics/mail-eu/tasks/b?in=1h", secret, bearer(mailToken)).want(t, "a beginning", 404, "unknown_topic")
	for _, method := range []string{"GET", "DELETE", "PATCH"} {
		d.do(method, "/v1/topics/mail-eu/tasks/b", "", bearer(mailToken)).want(t, method, 403, "forbidden")
	}
	if _, there := d.stored("b"); there {
		t.Error("a request that isn't permitted stored a task")
	}
	text := d.log.String()
	if !strings.Contains(text, "client=shop") {
		t.Errorf("the log doesn't name the client:\n%s", text)
	}
	for _, forbidden := range []string{secret, shopToken, mailToken, "0123456789"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("the log has %q:\n%s", forbidden, text)
		}
	}
}

// TestATokenIsRevoked by a change of the file. A file that can't be used changes nothing.
func TestATokenIsRevoked(t *testing.T) {
	t.Parallel()
	file := tokensFile(t)
	d := open(t, func(c *Config) { c.Tokens = file })
	status := func(token string) int { return d.do("GET", path("a"), "", bearer(token)).status }
	check.Equal(t, "shop", status(shopToken), 404)
	other := "next-0123456789-0123456789-0123456789"
	writeTokens(t, file, entry("shop", other, "*", "get"))
	check.Until(t, "the new file", func() bool { return status(shopToken) == 401 })
	check.Equal(t, "the next token", status(other), 404)
	check.OK(t, os.WriteFile(file, []byte("clients: [{name: "+secret), 0o600))
	check.Until(t, "the warning", func() bool {
		return status(other) == 404 && strings.Contains(d.log.String(), "last good content stays in use")
	})
	check.OK(t, os.Remove(file))
	check.Equal(t, "the next token", status(other), 404)
	if strings.Contains(d.log.String(), secret) {
		t.Errorf("the log quotes the file:\n%s", d.log)
	}
}

// TestTokensAreChecked: a file with a mistake is refused, and the error has no hash.
func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	good := entry("a", shopToken, "orders", "get")
	hash := good[strings.Index(good, "[")+1 : strings.Index(good, "]")]
	for text, want := range map[string]string{
		"":                         "at least one is needed",
		"clients: []":              "at least one is needed",
		"clients: [null]":          "client 1: is empty",
		"clients:\n" + good + good: "the name is given twice",
		"clients:\n" + entry("a", shopToken, "orders", "fly"):          "verbs: must be of",
		"clients:\n" + entry("a", shopToken, "or ders", "get"):         "topics: topic: must be 1 to 64",
		"clients:\n" + good + "    rate: -1\n":                         "rate: must be 0",
		"clients:\n" + good + "    rate: .nan\n":                       "rate: must be 0",
		"clients:\n" + good + "    ratio: 1\n":                         "unknown field",
		"clients:\n" + strings.Replace(good, hash, hash[1:], 1):        "sha256: must be 64 hexadecimal digits; got 63",
		"clients:\n" + strings.Replace(good, "name: a", `name: ""`, 1): "name: must be",
		"clients:\n" + strings.Replace(good, "["+hash+"]", "[]", 1):    "sha256, topics and verbs are needed",
	} {
		_, err := parseTokens([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hash[:16]) {
			t.Errorf("%s\ngot %v, want %q", text, err, want)
		}
	}
	if _, err := parseTokens([]byte("clients:\n" + good)); err != nil {
		t.Error(err)
	}
}

// TestAClientKeepsItsRate, and others aren't held up by it.
func TestAClientKeepsItsRate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokens(t, file, entry("slow", mailToken, "*", "get")+"    rate: 0.001\n"+entry("shop", shopToken, "*", "get"))
	d := open(t, func(c *Config) { c.Tokens = file })
	d.do("GET", path("a"), "", bearer(mailToken)).want(t, "the first", 404, "not_found")
	a := d.do("GET", path("a"), "", bearer(mailToken))
	a.want(t, "the second", 429, "rate_limited")
	check.Equal(t, "Retry-After", a.header.Get("Retry-After"), "1000")
	d.do("GET", path("a"), "", bearer(shopToken)).want(t, "another client", 404, "not_found")

	b, now := newBucket(10), time.Now()
	taken := 0
	for range 100 {
		if b.take(now) {
			taken++
		}
	}
	check.Equal(t, "at once", taken, 10)
	check.Equal(t, "after a tenth of a second", b.take(now.Add(110*time.Millisecond)), true)
	check.Equal(t, "and no more", b.take(now.Add(110*time.Millisecond)), false)
}

// TestNoTokensNoOtherMachine: without tokens the server listens on loopback addresses only.
func TestNoTokensNoOtherMachine(t *testing.T) {
	t.Parallel()
	for listen, refused := range map[string]bool{
		":0": true, "0.0.0.0:0": true, "[::]:0": true, "10.0.0.1:0": true, "example.com:0": true,
		"127.0.0.1.example.com:0": true,
		"127.0.0.1:0":             false, "[::1]:0": false, "localhost:0": false, "127.8.8.8:0": false,
	} {
		d := &door{t: t, log: &check.Log{}}
		_, err := New(Config{Listen: listen, Tasks: &producer.Client{}, Batches: &producer.Client{}, MaxPayload: 1,
			Registerer: prometheus.NewRegistry(), Log: logTo(d.log)})
		if got := err != nil; got != refused {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// panicking is a library with a defect.
type panicking struct{ Tasks }

func (panicking) Cancel(context.Context, string, string) error { panic(secret) }

// TestADefectIsAnAnswer: a panic ends its request alone, and its value isn't logged.
func TestADefectIsAnAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *Config) { c.Tasks = panicking{c.Tasks} })
	a := d.do("DELETE", path("a"), "")
	a.want(t, "a panic", 500, "internal")
	check.Equal(t, "done", a.body["done"], any("maybe"))
	d.do("GET", path("a"), "").want(t, "the next request", 404, "not_found")
	if text := d.log.String(); strings.Contains(text, secret) || !strings.Contains(text, "safe_test.go") {
		t.Errorf("the log has the panic's value, or not its place:\n%s", text)
	}
}

// TestASlowClientLosesItsConnection, whether its header or its body is slow.
func TestASlowClientLosesItsConnection(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.end()
	server, err := New(d.server.cfg.withRegistry())
	check.OK(t, err)
	server.http.ReadHeaderTimeout, server.http.ReadTimeout = 50*time.Millisecond, 100*time.Millisecond
	check.OK(t, server.Listen())
	defer check.Background(t, "the server", server.Run)()
	for name, sent := range map[string]string{
		"header": "PUT " + path("a") + "?in=1h HTTP/1.1\r\nHost: loc",
		"body":   "PUT " + path("a") + "?in=1h HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345",
	} {
		conn, err := net.Dial("tcp", server.Addr())
		check.OK(t, err)
		_, err = conn.Write([]byte(sent))
		check.OK(t, err)
		check.OK(t, conn.SetReadDeadline(time.Now().Add(check.Hang)))
		text, err := io.ReadAll(conn) // until the server closes it
		check.OK(t, err)
		if name == "body" {
			resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
			check.OK(t, err)
			a, err := d.read(http.MethodPut, path("a"), resp)
			check.OK(t, err)
			a.want(t, "a slow body", 408, "slow")
		}
		_ = conn.Close()
	}
	if _, there := d.stored("a"); there {
		t.Error("half a body was stored")
	}
}

// TestConnectionsAreLimited: one more waits until another one is closed.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *Config) { c.MaxConnections = 1 })
	first, err := net.Dial("tcp", d.server.Addr())
	check.OK(t, err)
	check.Until(t, "the first connection", func() bool { return len(d.server.ln.(*limited).free) == 1 })
	answered := make(chan error, 1)
	go func() { _, err := d.try("GET", path("a"), nil); answered <- err }()
	_, err = fmt.Fprintf(first, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path("a"))
	check.OK(t, err)
	check.OK(t, first.SetReadDeadline(time.Now().Add(check.Hang)))
	a, err := http.ReadResponse(bufio.NewReader(first), nil)
	check.OK(t, err)
	check.Equal(t, "status", a.StatusCode, http.StatusNotFound)
	if len(answered) > 0 {
		t.Error("the second connection was served before the first was closed")
	}
	check.OK(t, errors.Join(a.Body.Close(), first.Close()))
	check.OK(t, check.Receive(t, "the second answer", answered))
}

// TestAStopAnswersWhatBegan: a request whose body is still arriving is answered and stored.
func TestAStopAnswersWhatBegan(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	body, rest := io.Pipe()
	answered := make(chan answer, 1)
	go func() {
		a, err := d.try("PUT", path("a")+"?in=1h", body)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	_, err := rest.Write([]byte("half, "))
	check.OK(t, err)
	check.Until(t, "the request", func() bool { return d.server.active.Load() == 1 })
	ended := make(chan struct{})
	go func() { d.end(); close(ended) }()
	check.Until(t, "the listener's end", func() bool {
		conn, err := net.Dial("tcp", d.server.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	_, err = rest.Write([]byte("whole"))
	check.OK(t, errors.Join(err, rest.Close()))
	a := check.Receive(t, "the answer", answered)
	check.Equal(t, "status", a.status, http.StatusOK)
	check.Closed(t, "the end", ended)
	s, _ := d.stored("a")
	check.Equal(t, "payload", string(s.Payload), "half, whole")
}
