package check_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// said keeps what a check says instead of ending a test.
type said struct {
	text string
}

func (s *said) Helper()                      {}
func (s *said) Fatal(args ...any)            { s.text += fmt.Sprint(args...) }
func (s *said) Errorf(f string, args ...any) { s.text += fmt.Sprintf(f, args...) }
func (s *said) Fatalf(f string, args ...any) { s.text += fmt.Sprintf(f, args...) }

// TestChecksSayWhatIsWrong: a check says nothing about a good value, and what is wrong
// with another.
func TestChecksSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for want, run := range map[string]func(check.T){
		"broken":               func(t check.T) { check.OK(t, nil); check.OK(t, broken) },
		"tasks: got 2, want 3": func(t check.T) { check.Equal(t, "tasks", 3, 3); check.Equal(t, "tasks", 2, 3) },
		"fix: two\nlines\nwant two": func(t check.T) {
			check.Line(t, "fix", "two", "tw")
			check.Line(t, "fix", "two\nlines", "two")
		},
		"fix: two\nwant ":              func(t check.T) { check.Line(t, "fix", "", ""); check.Line(t, "fix", "two", "") },
		"fix: two\nwant wo":            func(t check.T) { check.Line(t, "fix", "two", "wo") },
		"b:\n got broken\nwant torn":   func(t check.T) { refusals(t, check.Refusal{broken, "torn"}) },
		"b:\n got <nil>\nwant no task": func(t check.T) { refusals(t, check.Refusal{nil, "no task"}) },
	} {
		s := &said{}
		if run(s); s.text != want {
			t.Errorf("got %q, want %q", s.text, want)
		}
	}
}

// refusals checks a refusal between two good ones.
func refusals(t check.T, b check.Refusal) {
	good := check.Refusal{errors.New("good"), "good"}
	check.Refusals(t, map[string]check.Refusal{"a": good, "b": b, "c": good})
}
