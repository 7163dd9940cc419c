package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	shopToken = "shop-0123456789-0123456789-0123456789"
	mailToken = "mail-0123456789-0123456789-0123456789"
	secret    = "a payload that no log may have"
)

// door is a running server on a test's part of a Redis, with the topic orders.
type door struct {
	t      *testing.T
	redis  *fixture.Redis
	tasks  *producer.Client
	server *Server
	url    string
	client *http.Client
	log    *check.Log
	end    func()
}

// open starts a server; change may change its configuration.
func open(t *testing.T, change func(*Config)) *door {
	t.Helper()
	return openAt(t, fixture.New(t), change)
}

func openAt(t *testing.T, r *fixture.Redis, change func(*Config)) *door {
	t.Helper()
	r.Serve(t, 3)
	d := &door{t: t, redis: r, log: &check.Log{}, client: &http.Client{Transport: &http.Transport{}, Timeout: check.Hang}}
	var err error
	d.tasks, err = producer.New(producer.Config{Options: servertest.RedisOptions(r.Addr), Prefix: r.Prefix,
		MaxPayload: 1000, Timeout: 2 * time.Second})
	check.OK(t, err)
	t.Cleanup(func() { _ = d.tasks.Close() })
	cfg := Config{Listen: "127.0.0.1:0", Tasks: d.tasks, Batches: d.tasks, MaxPayload: 1000,
		Registerer: prometheus.NewRegistry(),
		Log:        slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&cfg)
	}
	d.server, err = New(cfg)
	check.OK(t, err)
	check.OK(t, d.server.Listen())
	d.url = "http://" + d.server.Addr()
	d.end = check.Background(t, "the server", d.server.Run)
	t.Cleanup(d.client.CloseIdleConnections) // before the server's end
	return d
}

// answer is an answer to a request.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

// do sends a request. Each of headers is "Name: value".
func (d *door) do(method, path, body string, headers ...string) answer {
	d.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	return d.send(method, path, reader, headers...)
}

func (d *door) send(method, path string, body io.Reader, headers ...string) answer {
	d.t.Helper()
	a, err := d.try(method, path, body, headers...)
	check.OK(d.t, err)
	return a
}

func (d *door) try(method, path string, body io.Reader, headers ...string) (a answer, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, d.url+path, body)
	if err != nil {
		return a, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return a, err
	}
	return d.read(method, path, resp)
}

// read reads an answer, which the document must have.
func (d *door) read(method, path string, resp *http.Response) (a answer, err error) {
	d.t.Helper()
	defer resp.Body.Close()
	a = answer{status: resp.StatusCode, header: resp.Header}
	if err := json.NewDecoder(resp.Body).Decode(&a.body); err != nil {
		return a, err
	}
	described().check(d.t, method, path, a)
	return a, nil
}

// stored returns a stored task by the library, and whether it is there.
func (d *door) stored(id string) (producer.Stored, bool) {
	d.t.Helper()
	s, err := d.tasks.Get(d.t.Context(), fixture.Orders, id)
	if errors.Is(err, task.ErrNotFound) {
		return s, false
	}
	check.OK(d.t, err)
	return s, true
}

// want ends the test unless an answer has a status, and a code if one is given.
func (a answer) want(t *testing.T, what string, status int, code any) {
	t.Helper()
	if a.status != status || a.body["code"] != code {
		t.Fatalf("%s: got %d %v, want %d %v; body %v", what, a.status, a.body["code"], status, code, a.body)
	}
	contentType := "application/json"
	if status >= 400 {
		contentType = "application/problem+json"
	}
	check.Equal(t, what+": content type", a.header.Get("Content-Type"), contentType)
}

// path returns the path of a task of orders.
func path(id string) string { return "/v1/topics/orders/tasks/" + id }

// tokensFile writes a file with the clients shop and mail, and returns its path.
func tokensFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokens(t, file, entry("shop", shopToken, "orders", "schedule, get, reschedule, cancel")+
		entry("mail", mailToken, "mail-*", "schedule"))
	return file
}

func entry(name, token, topics, verbs string) string {
	return fmt.Sprintf("  - name: %s\n    sha256: [%x]\n    topics: [%q]\n    verbs: [%s]\n", name,
		sha256.Sum256([]byte(token)), topics, verbs)
}

func writeTokens(t *testing.T, file, entries string) {
	t.Helper()
	check.OK(t, os.WriteFile(file+".new", []byte("clients:\n"+entries), 0o600))
	check.OK(t, os.Rename(file+".new", file))
}

func logTo(log *check.Log) *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }

// withRegistry returns the configuration of a further server.
func (c Config) withRegistry() Config {
	c.Registerer = prometheus.NewRegistry()
	return c
}
