package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestAnUnpaidOrderIsCancelledAndAPaidOneIsNot(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, id := range []string{"unpaid", "paid", "uncancelled"} {
		s.place(id, "unpaid")
	}
	s.pay("paid", http.StatusOK, "paid")
	s.pay("paid", http.StatusOK, "paid") // a repeat, as after a lost answer
	if _, err := s.story.Get(t.Context(), topic, "paid"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("the task of a paid order: %v", err)
	}
	// The payment of this order is committed, but its cancel is lost.
	execute(t, s.database, `UPDATE orders SET state = 'paid' WHERE id = 'uncancelled'`)
	s.story.Serve()
	s.mailed(1)
	s.pay("unpaid", http.StatusConflict, "cancelled")
	s.place("unpaid", "cancelled")
	s.story.Eventually("the task of the other paid order is delivered", func() bool {
		_, err := s.story.Get(t.Context(), topic, "uncancelled")
		return errors.Is(err, task.ErrNotFound)
	})
	s.place("later", "unpaid")
	s.mailed(2) // its step comes after the steps of the others
	s.pay("paid", http.StatusOK, "paid")
	s.pay("uncancelled", http.StatusOK, "paid")
}

// TestACrashBetweenScheduleAndCommitLeavesNothing: the task finds no order. A repeat of
// the request places the order.
func TestACrashBetweenScheduleAndCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place("first", "unpaid") // the service has made its table
	db := connect(t, s.database)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), `LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE`) // reads are still allowed
	}
	if err != nil {
		t.Fatal(err)
	}
	crashed := make(chan reply, 1)
	go func() {
		r, _ := send(t.Context(), s.url+"/orders", `{"id":"o-1","mail":"ann@example.org"}`)
		crashed <- r
	}()
	s.story.Eventually("its connection waits, with the task stored, and is cut", func() bool {
		var cut bool
		err := db.QueryRowContext(t.Context(), `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false)
			FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&cut)
		return err == nil && cut && s.story.Payload("o-1") == stepCancel
	})
	if r := check.Receive(t, "the answer", crashed); r.status < http.StatusInternalServerError {
		t.Errorf("it answers %+v", r)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.story.Serve()
	s.mailed(1) // of the order "first"
	s.story.Eventually("its task is delivered", func() bool { return s.story.Payload("o-1") == "" })
	s.pay("o-1", http.StatusNotFound, "")
	s.place("o-1", "unpaid")
	s.mailed(2)
	s.pay("o-1", http.StatusConflict, "cancelled")
	if parked := s.story.Parked(); len(parked) > 0 {
		t.Errorf("parked: %v", parked)
	}
}

// TestARepeatDoesNothingTwice: after a lost answer the mail is posted again, with the
// same key.
func TestARepeatDoesNothingTwice(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.post.lose = true
	s.place("o-1", "unpaid")
	s.place("o-1", "unpaid")
	s.story.Serve()
	s.story.Eventually("the mail is posted twice", func() bool { _, posted := s.post.count(); return posted == 2 })
	s.place("o-2", "unpaid")
	s.mailed(2)
	s.story.Eventually("so is the other", func() bool { _, posted := s.post.count(); return posted >= 4 })
	if mails, posted := s.post.count(); mails != 2 || posted != 4 {
		t.Errorf("%d mails, posted %d times", mails, posted)
	}
}

func TestABrokenOrderIsParkedUntilItIsCorrected(t *testing.T) {
	t.Parallel()
	s := open(t)
	if r := s.ask("/orders", `{"id":"o-1","mail":"nowhere"}`); r.status != http.StatusOK {
		t.Fatalf("%+v", r)
	}
	s.story.Serve()
	s.story.Eventually("it is parked", func() bool { return strings.Contains(s.story.Parked()["o-1"], "mail address") })
	execute(t, s.database, `UPDATE orders SET mail = 'bob@example.org' WHERE id = 'o-1'`)
	s.story.Replay()
	s.mailed(1)
}

// TestWithoutRedisNoOrderIsPlaced: the service refuses the order in time, and the client
// can repeat the request. A payment needs no Redis.
func TestWithoutRedisNoOrderIsPlaced(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	options := servertest.RedisOptions(server.Addr())
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	store, err := shard.New(rdb, "duefleet")
	if err == nil {
		_, err = store.Topic(topic).Ensure(t.Context(), 1) // as a scanner would
	}
	if err != nil {
		t.Fatal(err)
	}
	url := disposition(t, options)
	expect := func(path, body string, status int, says string) {
		t.Helper()
		r, err := send(t.Context(), url+path, body)
		if err != nil || r.status != status || !strings.Contains(r.order.State+r.says, says) {
			t.Errorf("%s %s: %+v, %v; want %d %s", path, body, r, err, status, says)
		}
	}
	const first, second = `{"id":"o-1","mail":"ann@example.org"}`, `{"id":"o-2","mail":"ann@example.org"}`
	expect("/orders", first, http.StatusOK, "unpaid")
	expect("/orders", first, http.StatusOK, "unpaid")
	expect("/orders", `{"id":"o-1","mail":"bob@example.org"}`, http.StatusConflict, "another order's")
	expect("/orders", `{"id":"`+strings.Repeat("x", task.MaxID+1)+`"}`, http.StatusBadRequest, "id")
	expect("/orders", `{"id"`, http.StatusBadRequest, "EOF")
	expect("/orders/o-2/pay", "", http.StatusNotFound, "no such order")

	for _, away := range []struct{ begin, end func() error }{
		{server.Pause, server.Resume},
		{server.Kill, func() error { return server.Restart(t.Context()) }},
	} {
		if err := away.begin(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		expect("/orders", second, http.StatusServiceUnavailable, "repeat the request with the same ID")
		if took := time.Since(began); took > check.Hang/2 {
			t.Errorf("it took %s", took)
		}
		expect("/orders", first, http.StatusOK, "unpaid") // a repeat needs no Redis
		if err := away.end(); err != nil {
			t.Fatal(err)
		}
	}
	check.Until(t, "the repeat to place the order", func() bool {
		r, err := send(t.Context(), url+"/orders", second)
		return err == nil && r.status == http.StatusOK && r.order.State == "unpaid"
	})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	expect("/orders/o-2/pay", "", http.StatusOK, "paid")
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}
