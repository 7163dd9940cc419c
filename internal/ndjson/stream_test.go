package ndjson

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
)

func TestLineReader(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	long, fits := strings.Repeat("x", limit+1), strings.Repeat("y", limit-1)
	input := "one\n\ntwo\r\n" + long + "\n" + fits + "\n" + strings.Repeat("z", 3*limit) + "\nlast"
	lines := newLineReader(strings.NewReader(input), limit)
	for i, want := range []string{"one", "", "two", "!100002", fits, "!300001", "last"} {
		got, err := lines.next()
		var tooLong *task.RuleError
		switch {
		case errors.As(err, &tooLong):
			if want != "!"+strings.TrimSpace(strings.Fields(err.Error()[strings.Index(err.Error(), "got ")+4:])[0]) {
				t.Errorf("line %d: %v", i+1, err)
			}
		case err != nil || string(got) != want || lines.number != i+1:
			t.Errorf("line %d: got %.20q as number %d, %v; want %.20q", i+1, got, lines.number, err, want)
		}
	}
	if _, err := lines.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestLineReaderProperty: the reader returns the lines of a text, however the text is split
// into reads.
func TestLineReaderProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.StringMatching(`[a-z ]{0,20}`)).Draw(t, "lines")
		text := strings.Join(want, "\n")
		if len(want) > 0 && want[len(want)-1] == "" {
			want = want[:len(want)-1] // nothing after the last end is no line
		}
		lines := newLineReader(iotest.OneByteReader(strings.NewReader(text)), 1000)
		for i, w := range want {
			got, err := lines.next()
			if err != nil || string(got) != w {
				t.Fatalf("line %d of %q: got %q, %v", i+1, text, got, err)
			}
		}
		if _, err := lines.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end of %q: %v", text, err)
		}
	})
}

// TestLineReaderError: the reader returns the lines before a failed read, but no half line.
func TestLineReaderError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	lines := newLineReader(io.MultiReader(bytes.NewReader([]byte("one\nha")), iotest.ErrReader(broken)), 1000)
	if got, err := lines.next(); string(got) != "one" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := lines.next(); !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
}
