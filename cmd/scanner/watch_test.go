package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
)

// terminal is one that a test looks at and types on, with a page on it.
type terminal struct {
	vt.MockTerm
	t     *testing.T
	ended chan error
}

// onTerminal shows a page of what read returns, in the bubble of synctest.
func onTerminal(ctx context.Context, t *testing.T, read func(context.Context) (operate.Status, error)) *terminal {
	t.Helper()
	term := &terminal{MockTerm: vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24}), t: t, ended: make(chan error, 1)}
	screen, err := tcell.NewTerminfoScreenFromTty(term.MockTerm, tcell.OptNegotiation(false), tcell.OptTerm("xterm"))
	if err != nil {
		t.Fatal(err)
	}
	w := watch{screen: screen, read: read, page: page{every: time.Second}}
	go func() { term.ended <- w.run(ctx) }()
	synctest.Wait()
	return term
}

// shown is what the terminal shows.
func (s *terminal) shown() string {
	s.t.Helper()
	synctest.Wait()
	size, err := s.WindowSize()
	if err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for y := range size.Height {
		line := ""
		for x := range size.Width {
			if c := s.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C; c != "" {
				line += c
			} else {
				line += " "
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// wants holds what is shown to a part of it.
func (s *terminal) wants(part string) {
	s.t.Helper()
	if got := s.shown(); !strings.Contains(got, part) {
		s.t.Errorf("no %q in\n%s", part, got)
	}
}

// types gives the page keys, as the terminal sends them.
func (s *terminal) types(keys string) {
	s.SendRaw([]byte(keys))
	time.Sleep(time.Second / 2) // of the bubble's time: an escape alone is a key after a while
	synctest.Wait()
}

// quits ends the page.
func (s *terminal) quits(keys string) {
	s.t.Helper()
	s.types(keys)
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("it ended with %v", err)
		}
	default:
		s.t.Fatalf("it goes on after %q", keys)
	}
}

// TestWatchOnATerminal: keys, sizes and the ends, as somebody at a terminal has them.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onTerminal(t.Context(), t, func(context.Context) (operate.Status, error) { return outage(), nil })
		s.wants(">! invoices")
		s.types("\x1b[B")
		s.wants(">! orders")
		s.types("k")
		s.wants(">! invoices")
		s.types("j")
		s.types("\r")
		s.wants("q ends | up, down, page up")
		s.types("\x1b")
		s.wants("topic orders: M 64")
		s.SetSize(vt.Coord{X: 50, Y: 10})
		s.wants("cut: 50x10 is small")
		s.SetSize(vt.Coord{X: 200, Y: 60})
		s.wants("index 7, 1 errors")
		s.quits("q")
	})
	for name, keys := range map[string]string{"Ctrl-C": "\x03", "a signal": ""} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := onTerminal(ctx, t, func(context.Context) (operate.Status, error) { return outage(), nil })
			if keys == "" {
				cancel()
			}
			t.Log(name)
			s.quits(keys)
		})
	}
}

// TestWatchOutlivesFailures: a reading that fails shows the error, with what was read
// before it and how old that is; the next that succeeds ends that.
func TestWatchOutlivesFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := onTerminal(t.Context(), t, func(context.Context) (operate.Status, error) {
			if down.Load() {
				return operate.Status{}, errors.New("connection refused")
			}
			return outage(), nil
		})
		s.wants("! not read: connection refused")
		down.Store(false)
		time.Sleep(time.Second)
		s.wants("orders")
		if got := s.shown(); strings.Contains(got, "not read") {
			t.Errorf("after a reading:\n%s", got)
		}
		down.Store(true)
		time.Sleep(7 * time.Second)
		s.wants("! not read for 7s, and shown as it was: connection refused")
		s.wants("orders")
		down.Store(false)
		time.Sleep(2 * time.Second)
		if got := s.shown(); strings.Contains(got, "not read") {
			t.Errorf("after the failures:\n%s", got)
		}
		s.quits("q")
	})
}

// TestWatchReadsOnceAnInterval: readings begin an interval apart at least, and one that
// takes longer than that is waited for, however often the page is drawn meanwhile.
func TestWatchReadsOnceAnInterval(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 2500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var under, count atomic.Int64
			var last time.Time
			s := onTerminal(t.Context(), t, func(ctx context.Context) (operate.Status, error) {
				if under.Add(1) > 1 {
					t.Error("two readings at once")
				}
				defer under.Add(-1)
				if since := time.Since(last); since < time.Second {
					t.Errorf("a reading %s after the one before", since)
				}
				last = time.Now()
				count.Add(1)
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				return outage(), nil
			})
			for range 20 {
				s.types("j")
			}
			want := int64(10*time.Second/max(takes, time.Second)) + 1
			if got := count.Load(); got < want-1 || got > want+1 {
				t.Errorf("%d readings of %s each in 10 s, want %d", got, takes, want)
			}
			s.quits("q")
			synctest.Wait()
		})
	}
}

// TestWatchNeedsATerminal: a pipe is refused with what to take in its place, and so are
// flags that mean nothing beside it.
func TestWatchNeedsATerminal(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.wants(cli.Usage, "--watch needs a terminal; without one take -o json", "status", "--watch")
	o.wants(cli.Usage, "--interval must be 200ms to 1m; got 100ms", "status", "--watch", "--interval", "100ms")
	o.wants(cli.Usage, "--interval must be 200ms to 1m; got 1m1s", "status", "--watch", "--interval", "61s")
	o.wants(cli.Usage, "--interval is for --watch", "status", "--interval", "2s")
	o.wants(cli.Usage, "watch", "status", "--watch", "-o", "json")
	o.wants(cli.Usage, "watch", "status", "--watch", "--exit-code")
}
