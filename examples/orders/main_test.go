package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/examples/internal/apptest"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	code := servertest.Leaks(m)
	if shared != nil {
		_ = shared.Close(context.Background())
	}
	os.Exit(code)
}

// shared is the PostgreSQL server of the tests, nil until the first test needs it. Each
// test has its own database.
var shared *servers.Postgres

var postgres = sync.OnceValues(func() (*servers.Postgres, error) {
	var err error
	shared, err = servers.StartPostgres(context.Background())
	return shared, err
})

// database creates a database and returns its URL.
func database(t *testing.T) string {
	t.Helper()
	servertest.Need(t, "postgres", "initdb", "pg_isready")
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	name := "orders_" + strings.ToLower(rand.Text())
	execute(t, server.URL(), "CREATE DATABASE "+name)
	return strings.Replace(server.URL(), "/postgres?", "/"+name+"?", 1)
}

func execute(t *testing.T, url, statement string, args ...any) {
	t.Helper()
	db := connect(t, url)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// post is a mail service.
type post struct {
	url    string
	mu     sync.Mutex
	lose   bool // lose the answer to the first mail with each key
	posted int
	mails  map[string]string // by key
}

func newPost(t *testing.T) *post {
	p := &post{mails: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var mail struct{ To, Text string }
		err := json.NewDecoder(r.Body).Decode(&mail)
		p.mu.Lock()
		defer p.mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		p.posted++
		if _, known := p.mails[key]; err != nil || !known && p.lose {
			w.WriteHeader(http.StatusInternalServerError)
		}
		p.mails[key] = mail.To + ": " + mail.Text
	}))
	p.url = server.URL
	t.Cleanup(server.Close)
	return p
}

func (p *post) count() (mails, posted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mails), p.posted
}

// shop is a running service. Its tasks aren't delivered before Serve.
type shop struct {
	t        *testing.T
	story    *apptest.Story
	url      string
	database string
	post     *post
}

func open(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, database: database(t), post: newPost(t)}
	listen, err := fleet.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listen
	s.story = apptest.Run(t, topic, time.Minute, func(ctx context.Context, a *app.App) error {
		service, err := New(ctx, Config{
			Redis: servertest.RedisOptions(a.Redis), Prefix: a.Prefix, RabbitMQ: a.RabbitMQ, Database: s.database,
			MailURL: s.post.url, Listen: listen, PayWithin: 300 * time.Millisecond, RemindAfter: 100 * time.Millisecond,
			Policy: consumer.Fixed(10*time.Millisecond, 3), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
	return s
}

// reply is a reply of the service.
type reply struct {
	status int
	order  order
	says   string
}

// ask repeats a request until the service listens and Redis answers in time.
func (s *shop) ask(path, body string) (r reply) {
	s.t.Helper()
	check.Until(s.t, "an answer to "+path, func() bool {
		var err error
		r, err = send(s.t.Context(), s.url+path, body)
		return err == nil && r.status != http.StatusServiceUnavailable
	})
	return r
}

func send(ctx context.Context, url, body string) (r reply, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return r, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	var both struct{ ID, Mail, State, Error string }
	err = json.NewDecoder(response.Body).Decode(&both)
	return reply{response.StatusCode, order{both.ID, both.Mail, both.State}, both.Error}, err
}

// place places an order, and expects the given state.
func (s *shop) place(id, state string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"mail":"ann@example.org"}`, id)
	if r := s.ask("/orders", body); r.status != http.StatusOK || r.order.ID != id || r.order.State != state {
		s.t.Fatalf("order %s: %+v, want it %s", id, r, state)
	}
}

// pay pays an order, and expects the given reply.
func (s *shop) pay(id string, status int, state string) {
	s.t.Helper()
	if r := s.ask("/orders/"+id+"/pay", ""); r.status != status || r.order.State != state {
		s.t.Fatalf("pay %s: %+v, want %d %s", id, r, status, state)
	}
}

// mailed waits until n mails were sent.
func (s *shop) mailed(n int) {
	s.t.Helper()
	s.story.Eventually(fmt.Sprint(n, " mails"), func() bool { mails, _ := s.post.count(); return mails >= n })
	if mails, _ := s.post.count(); mails != n {
		s.t.Fatalf("%d mails, want %d", mails, n)
	}
}

// disposition is a service without Run, on its own Redis.
func disposition(t *testing.T, rdb *redis.UniversalOptions) (url string) {
	t.Helper()
	service, err := New(t.Context(), Config{
		Redis: rdb, Database: database(t), PayWithin: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(service.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
