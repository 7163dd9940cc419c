package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/examples/internal/apptest"
)

func TestACallbackIsRepeatedTenTimesParkedAndRevived(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	var well atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if !well.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(receiver.Close)
	s := apptest.Run(t, topic, 5*time.Millisecond, func(ctx context.Context,
		a *app.App) error {
		return run(ctx, a, receiver.URL)
	})
	s.Serve()
	s.Eventually("it is parked", func() bool { return len(s.Parked()) == 1 })
	if reason := s.Parked()["payment-1"]; reason != "abnormal: the receiver answers 502 Bad Gateway" {
		t.Errorf("parked with %q", reason)
	}
	if n := calls.Load(); n != 10 {
		t.Errorf("called %d times", n)
	}
	well.Store(true)
	s.Replay()
	s.Tells("payment-1 is notified")
	if n := calls.Load(); n != 11 {
		t.Errorf("called %d times", n)
	}
}
