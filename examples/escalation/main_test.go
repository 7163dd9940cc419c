package main

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/examples/internal/apptest"
)

func TestAnAlarmGoesOnUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 40*time.Millisecond, run)
	stop := s.Serve()
	fire := []string{"Ann is told of fire", "Bob is told of fire", "Cid is told of fire"}
	s.Tells(fire...)
	goOn := s.Hold("Ann is told of flood")
	if err := s.In(t.Context(), "flood", 0, "0"); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the first is told", func() bool { return len(s.Lines()) == 4 })
	stop() // the next step is stored, and isn't delivered before it is acknowledged
	goOn()
	s.Eventually("the next step waits", func() bool { return s.Payload("flood") == "1" })
	if err := acknowledge(t.Context(), s.App, "flood"); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	// The next step of the flood would be due before this.
	if err := s.In(t.Context(), "frost", 6, "2"); err != nil {
		t.Fatal(err)
	}
	s.Tells(append(fire, "Ann is told of flood", "Cid is told of frost")...)
}
