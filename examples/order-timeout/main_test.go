package main

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/examples/internal/apptest"
	"github.com/duefleet/duefleet/task"
)

func TestAnUnpaidOrderIsCancelledAndAPaidOneIsNot(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 20*time.Millisecond, run)
	s.Tells("order-1 is paid")
	s.Serve()
	// Both orders are due at the same time, and nothing is printed after the last line.
	s.Tells("order-1 is paid", "order-2 is cancelled: it wasn't paid within 30 minutes")
	if err := s.In(t.Context(), "order-3", 1, ""); err != nil {
		t.Fatal(err)
	}
	s.Tells("order-1 is paid", "order-2 is cancelled: it wasn't paid within 30 minutes",
		"order-3 is cancelled: it wasn't paid within 30 minutes")
	s.Eventually("the scanner has settled it", func() bool {
		_, err := s.Get(t.Context(), topic, "order-3")
		return errors.Is(err, task.ErrNotFound)
	})
	if err := pay(t.Context(), s.App, "order-3"); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the late payment is reported",
		func() bool { return s.Lines()[len(s.Lines())-1] == "order-3 is paid too late" })
}

func TestAChangedOrderHasThirtyMinutesFromItsChange(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 20*time.Millisecond, run)
	s.Tells("order-1 is paid")
	placed, err := s.Get(t.Context(), topic, "order-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.In(t.Context(), "order-2", 30, ""); err != nil {
		t.Fatal(err)
	}
	changed, err := s.Get(t.Context(), topic, "order-2")
	if err != nil {
		t.Fatal(err)
	}
	if !changed.Due.After(placed.Due) {
		t.Errorf("due at %v, before the change at %v", changed.Due, placed.Due)
	}
	s.Serve()
	if err := s.In(t.Context(), "order-3", 60, ""); err != nil {
		t.Fatal(err)
	}
	// A second limit of order-2 would be due before order-3.
	s.Tells("order-1 is paid", "order-2 is cancelled: it wasn't paid within 30 minutes",
		"order-3 is cancelled: it wasn't paid within 30 minutes")
}
