package main

import (
	"slices"
	"testing"
	"time"

	"github.com/duefleet/duefleet/examples/internal/apptest"
)

func TestANewerEventMovesTheReminder(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 50*time.Millisecond, run)
	s.Eventually("the newer event has moved the reminder", func() bool { return s.Payload("ann") == "a chair" })
	s.Serve()
	s.Eventually("both are reminded", func() bool { return len(s.Lines()) == 2 })
	if err := event(t.Context(), s.App, "cid", "a pen"); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the next is reminded", func() bool { return len(s.Lines()) >= 3 })
	got := s.Lines()
	slices.Sort(got)
	want := []string{"to ann: your basket still holds a chair", "to bob: your basket still holds a lamp",
		"to cid: your basket still holds a pen"}
	if !slices.Equal(got, want) {
		t.Errorf("sent %q", got)
	}
}

func TestAnEventDuringAReminderHasAReminderOfItsOwn(t *testing.T) {
	t.Parallel()
	s := apptest.Run(t, topic, 10*time.Millisecond, run)
	first := "to dan: your basket still holds a book"
	goOn := s.Hold(first)
	s.Serve()
	s.Eventually("both are reminded", func() bool { return len(s.Lines()) == 2 })
	if err := event(t.Context(), s.App, "dan", "a book"); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the next is reminded", func() bool { return len(s.Lines()) == 3 })
	// Its delivery isn't acknowledged, and it mustn't take the newer task with it.
	if err := event(t.Context(), s.App, "dan", "a vase"); err != nil {
		t.Fatal(err)
	}
	goOn()
	s.Eventually("he is reminded again", func() bool { return len(s.Lines()) == 4 })
	if got := s.Lines()[2:]; !slices.Equal(got, []string{first, "to dan: your basket still holds a vase"}) {
		t.Errorf("sent %q", got)
	}
}
