package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestOnlyAYesDeletes: any other answer, no answer, and Ctrl-C change nothing.
func TestOnlyAYesDeletes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{
		"y\n": nil, "YES\n": nil, " yes": nil,
		"": ErrDeclined, "\n": ErrDeclined, "n\n": ErrDeclined, "yep\n": ErrDeclined, "no\ny\n": ErrDeclined,
	} {
		var out bytes.Buffer
		if err := question(t.Context(), strings.NewReader(answer), &out, "delete it"); !errors.Is(err, want) {
			t.Errorf("answer %q: got %v, want %v", answer, err, want)
		}
		if out.String() != "delete it? [y/N] " {
			t.Errorf("it asks %q", out.String())
		}
	}
	silent, typing := io.Pipe()
	defer typing.Close()
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := question(interrupted, silent, io.Discard, "delete it"); !errors.Is(err, ErrDeclined) {
		t.Errorf("interrupted: got %v", err)
	}
}

func TestNumbersOfTasksAreLegible(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 tasks", 1: "1 task", 999: "999 tasks", 1000: "1,000 tasks",
		200000: "200,000 tasks", 1234567: "1,234,567 tasks"} {
		if got := Counted(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
