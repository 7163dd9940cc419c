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
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) {
	code := servertest.Leaks(m)
	if shared != nil {
		_ = shared.Close(context.Background())
	}
	os.Exit(code)
}

// shared is the PostgreSQL of the tests, each of which has a database of its own; nil until
// the first needs it.
var shared *servers.Postgres

var postgres = sync.OnceValues(func() (*servers.Postgres, error) {
	var err error
	shared, err = servers.StartPostgres(context.Background())
	return shared, err
})

// database makes one, and returns its URL.
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
	lose   bool // the answer to the first mail with each key is lost
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

// shop is a service at work, whose tasks nobody delivers until Serve.
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

// reply is what a service answers.
type reply struct {
	status int
	order  order
	says   string
}

// ask sends a request, until the service listens, and Redis answers it in time.
func (s *shop) ask(path, body string) (r reply) {
	s.t.Helper()
	wait.For(s.t, "an answer to "+path, func() bool {
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

// place orders, and expects the order to be in a state.
func (s *shop) place(id, state string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"mail":"ann@example.org"}`, id)
	if r := s.ask("/orders", body); r.status != http.StatusOK || r.order.ID != id || r.order.State != state {
		s.t.Fatalf("order %s: %+v, want it %s", id, r, state)
	}
}

// pay pays, and expects an answer.
func (s *shop) pay(id string, status int, state string) {
	s.t.Helper()
	if r := s.ask("/orders/"+id+"/pay", ""); r.status != status || r.order.State != state {
		s.t.Fatalf("pay %s: %+v, want %d %s", id, r, status, state)
	}
}

// mailed waits for as many mails.
func (s *shop) mailed(n int) {
	s.t.Helper()
	s.story.Eventually(fmt.Sprint(n, " mails"), func() bool { mails, _ := s.post.count(); return mails >= n })
	if mails, _ := s.post.count(); mails != n {
		s.t.Fatalf("%d mails, want %d", mails, n)
	}
}

// standing is a service without its Run, on a Redis of its own.
func standing(t *testing.T, rdb *redis.UniversalOptions) (url string) {
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
