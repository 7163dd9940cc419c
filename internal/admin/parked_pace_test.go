package admin

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAReplayKeepsToItsLimitAndItsRate: it does over several shards, and can be cancelled.
func TestAReplayKeepsToItsLimitAndItsRate(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	a.fill(0, 60)
	a.fill(1, 60)
	left := func(want int64) {
		t.Helper()
		if n, err := (Parked{Topic: a.topic}).Count(t.Context()); err != nil || n != want {
			t.Fatalf("%d are left, %v; want %d", n, err, want)
		}
	}
	if n, err := (Parked{Topic: a.topic, Limit: 70}).Replay(t.Context(), ""); n != 70 || err != nil {
		t.Fatalf("with a limit: %d, %v", n, err)
	}
	left(50)
	began := time.Now()
	if n, err := (Parked{Topic: a.topic, Limit: 30, Rate: 20}).Replay(t.Context(), ""); n != 30 || err != nil {
		t.Fatalf("with a rate: %d, %v", n, err)
	}
	if took := time.Since(began); took < 1300*time.Millisecond { // the first two at once, then 20 a second
		t.Errorf("30 tasks at 20 a second took %s", took)
	}
	left(20)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n, err := Parked{Topic: a.topic, Rate: 1, Progress: func(visited, _ int64) {
		if visited == 1 {
			stop()
		}
	}}.Replay(ctx, "")
	if n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("ended after the first: %d, %v", n, err)
	}
	left(19)
}
