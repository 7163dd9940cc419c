package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
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

func TestMomentsAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2026-12-01T11:00:00+01:00": now,
		"1796119200000":             now,
		"30m":                       now.Add(30 * time.Minute),
		"-1h":                       now.Add(-time.Hour),
		"2d":                        now.Add(48 * time.Hour),
		"1d12h":                     now.Add(36 * time.Hour),
		"-1.5d":                     now.Add(-36 * time.Hour),
		"0":                         time.UnixMilli(0),
	} {
		if got, err := ParseMoment("--due-before", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"d", "1x", "1796119200", "nand", "1e9d", "tomorrow", "2026-12-01"} {
		if got, err := ParseMoment("--due-before", text, now); err == nil {
			t.Errorf("%s: got %s", text, got)
		}
	}
}
