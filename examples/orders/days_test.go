package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
)

// days is a service whose tasks are on a clock that the test moves. So it has the delays of
// production: 30 minutes to pay, and a mail a day later. It uses a real database.
type days struct {
	t     *testing.T
	fleet *duefleettest.Fleet
	url   string
	post  *post
}

func openDays(t *testing.T) *days {
	t.Helper()
	d := &days{t: t, post: newPost(t)}
	db, err := openDatabase(t.Context(), database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	due := timeouts{orders: orders{db}, mails: mailer{d.post.url}, remindAfter: 24 * time.Hour}
	d.fleet = duefleettest.New(t, duefleettest.Config{
		Topics: []string{topic}, Handler: due.handle, Policy: consumer.Fixed(time.Minute, 5),
	})
	service := &Service{cfg: Config{PayWithin: 30 * time.Minute, Log: slog.New(slog.DiscardHandler)},
		db: db, tasks: d.fleet.Client()}
	server := httptest.NewServer(service.Handler())
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// ask sends a request, and expects the state of an order.
func (d *days) ask(path, body string, status int, state string) {
	d.t.Helper()
	r, err := send(d.t.Context(), d.url+path, body)
	if err != nil || r.status != status || r.order.State != state {
		d.t.Errorf("%s: got %+v, %v; want %d %s", path, r, err, status, state)
	}
}

const orderOfAnn = `{"id":"o-1","mail":"ann@example.org"}`

func TestAnOrderIsCancelledAfterThirtyMinutesAndMailedADayLater(t *testing.T) {
	t.Parallel()
	d := openDays(t)
	d.ask("/orders", orderOfAnn, http.StatusOK, "unpaid")
	d.fleet.Advance(30*time.Minute - time.Millisecond)
	d.ask("/orders", orderOfAnn, http.StatusOK, "unpaid")
	d.fleet.Advance(time.Millisecond)
	d.ask("/orders", orderOfAnn, http.StatusOK, "cancelled")
	d.ask("/orders/o-1/pay", "", http.StatusConflict, "cancelled")
	if got := d.fleet.Advance(24*time.Hour - time.Millisecond); len(got) > 0 {
		t.Errorf("got deliveries %+v before the day is over", got)
	}
	d.fleet.Advance(time.Millisecond)
	if mails, posted := d.post.count(); mails != 1 || posted != 1 {
		t.Errorf("got %d mails, posted %d times, want one", mails, posted)
	}
}

func TestAPaidOrderHasNoTask(t *testing.T) {
	t.Parallel()
	d := openDays(t)
	d.ask("/orders", orderOfAnn, http.StatusOK, "unpaid")
	d.fleet.Advance(29 * time.Minute)
	d.ask("/orders/o-1/pay", "", http.StatusOK, "paid")
	if pending := d.fleet.Pending(topic); len(pending) > 0 {
		t.Errorf("got tasks %+v, want none", pending)
	}
	d.fleet.Advance(48 * time.Hour)
	d.ask("/orders", orderOfAnn, http.StatusOK, "paid")
}

// TestAMailWhoseAnswerIsLost: it is posted again a minute later, with the same key.
func TestAMailWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	d := openDays(t)
	d.post.lose = true
	d.ask("/orders", orderOfAnn, http.StatusOK, "unpaid")
	var attempts []int
	for _, got := range d.fleet.Advance(48 * time.Hour) {
		attempts = append(attempts, got.Attempt)
	}
	if mails, posted := d.post.count(); mails != 1 || posted != 2 || len(attempts) != 3 || attempts[2] != 2 {
		t.Errorf("got %d mails, posted %d times, attempts %v", mails, posted, attempts)
	}
}
