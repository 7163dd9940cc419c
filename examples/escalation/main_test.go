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
	fire := []string{"Ann is alerted: fire", "Bob is alerted: fire", "Cid is alerted: fire"}
	s.Tells(fire...)
	goOn := s.Hold("Ann is alerted: flood")
	if err := s.In(t.Context(), "flood", 0, "0"); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the first is alerted", func() bool { return len(s.Lines()) == 4 })
	stop() // the next step is stored, but not delivered before the acknowledgement
	goOn()
	s.Eventually("the next step waits", func() bool { return s.Payload("flood") == "1" })
	if err := acknowledge(t.Context(), s.App, "flood"); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	// If the flood had a next step, it would be due before this task.
	if err := s.In(t.Context(), "frost", 6, "2"); err != nil {
		t.Fatal(err)
	}
	s.Tells(append(fire, "Ann is alerted: flood", "Cid is alerted: frost")...)
}

func TestAnAlarmWithoutAStepWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 10*time.Millisecond, run)
	s.Serve()
	for alarm, step := range map[string]string{"flood": "Ann", "frost": "3", "smoke": "-1"} {
		if err := s.In(t.Context(), alarm, 0, step); err != nil {
			t.Fatal(err)
		}
	}
	s.Eventually("the alarms are parked", func() bool { return len(s.Parked()) == 3 })
	for alarm, reason := range s.Parked() {
		if reason != "the payload is not a step" {
			t.Errorf("%s is parked with %q", alarm, reason)
		}
	}
	s.Tells("Ann is alerted: fire", "Bob is alerted: fire", "Cid is alerted: fire")
}
