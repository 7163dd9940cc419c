package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoadDash: a dash is standard input.
func TestLoadDash(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	r, sum := c.load(strings.NewReader(oneTask), "-")
	wantCounts(t, sum, "lines=1 scheduled=1")
	if r.code != 0 || c.stored() != 1 {
		t.Errorf("exit code %d, %d tasks are stored: %s", r.code, c.stored(), r.stderr)
	}
}

// TestLoadManyBadLines: of a stream with many bad lines ten are shown, and how
// many more there are; a file that is asked for holds them all.
func TestLoadManyBadLines(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	const n, bad = 3000, 2000
	tasks := func() io.Reader {
		return lines(n, func(i int) string {
			if i%3 > 0 {
				return fmt.Sprintf(`{"id":"o-%d","due":"soon"}`, i)
			}
			return fmt.Sprintf(`{"id":"o-%d","in":"1h"}`, i)
		})
	}
	all := filepath.Join(t.TempDir(), "bad.txt")
	if err := os.WriteFile(all, []byte("what was there before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct {
		args []string
		more string
	}{
		{nil, "producer: 1990 more bad lines are not shown; --errors FILE takes them all"},
		{[]string{"--errors", all}, "producer: 1990 more bad lines are not shown; all are in " + all},
	} {
		r, sum := c.load(tasks(), run.args...)
		wantCounts(t, sum, fmt.Sprintf("lines=%d scheduled=%d bad=%d", n, n-bad, bad))
		shown := strings.Split(strings.TrimSpace(r.stderr), "\n")
		if r.code != 1 || len(shown) != 12 {
			t.Fatalf("exit code %d, %d lines, want 1 and 12; they begin with\n%.3000s", r.code, len(shown), r.stderr)
		}
		if !strings.HasPrefix(shown[0], `producer: line 2: unknown field "due"`) || !strings.HasPrefix(shown[9], "producer: line 15: ") {
			t.Errorf("the first is %s\nthe tenth %s", shown[0], shown[9])
		}
		if shown[10] != run.more || !strings.HasPrefix(shown[11], "producer: load orders: 2000 of 3000 lines are bad") {
			t.Errorf("the last are %s\n%s", shown[10], shown[11])
		}
	}
	text, err := os.ReadFile(all)
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(told) != bad || !strings.HasPrefix(told[0], `line 2: unknown field "due"`) || !strings.HasPrefix(told[bad-1], "line 3000: ") {
		t.Errorf("%s has %d lines, the first %s, the last %s", all, len(told), told[0], told[len(told)-1])
	}
}

// TestLoadBadLinesNotWritten: a file that can't be made ends a load before it
// begins, and one that can't be written is told of at the end.
func TestLoadBadLinesNotWritten(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	r := c.run(oneTask, "load", "--topic", "orders", "--errors", filepath.Join(t.TempDir(), "nowhere", "bad.txt"))
	wantError(t, r, 1, "--errors: open ")
	if r.stdout != "" || c.stored() != 0 {
		t.Errorf("printed %q, %d tasks are stored", r.stdout, c.stored())
	}
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("no device to write to that is full")
	}
	r = c.run(oneTask+"{}\n", "load", "--topic", "orders", "--errors", full)
	if r.code != 1 || !strings.Contains(r.stderr, "--errors: not all bad lines are written: write /dev/full: no space left on device") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if !strings.Contains(r.stdout, "2 lines: 1 scheduled, 0 existing, 1 bad") || c.stored() != 1 {
		t.Errorf("printed %q, %d tasks are stored", r.stdout, c.stored())
	}
}
