package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/examples/internal/apptest"
)

func TestARefundIsAskedForUntilItIsFinal(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	ask := func(context.Context, string) (string, error) {
		switch asked.Add(1) {
		case 2:
			return "", errors.New("the bank is closed")
		case 4:
			return "refunded", nil
		}
		return "pending", nil
	}
	s := apptest.Run(t, topic, 30*time.Millisecond, func(ctx context.Context,
		a *app.App) error {
		return run(ctx, a, ask)
	})
	s.Serve()
	s.Tells("refund-1 is pending", "refund-1 is pending", "refund-1 is refunded")
	if n := asked.Load(); n != 4 {
		t.Errorf("asked %d times", n)
	}
}

func TestABankThatNeverAnswersWaitsForAPerson(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var well atomic.Bool
	ask := func(context.Context, string) (string, error) {
		asked.Add(1)
		if !well.Load() {
			return "", errors.New("the bank is closed")
		}
		return "refunded", nil
	}
	s := apptest.Run(t, topic, 2*time.Millisecond, func(ctx context.Context,
		a *app.App) error {
		return run(ctx, a, ask)
	})
	s.Serve()
	s.Eventually("it is parked", func() bool { return len(s.Parked()) == 1 })
	if reason := s.Parked()["refund-1"]; reason != "the bank is closed" {
		t.Errorf("parked with %q", reason)
	}
	if n := asked.Load(); n != 20 {
		t.Errorf("asked %d times", n)
	}
	well.Store(true)
	s.Replay()
	s.Tells("refund-1 is refunded")
}
