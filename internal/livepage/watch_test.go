package livepage

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

	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/wait"
)

// terminal is a fake terminal with a page, which a test reads and types on.
type terminal struct {
	vt.MockTerm
	t     *testing.T
	ended chan error
}

// onTerminal shows a page of read's results, in a bubble of synctest.
func onTerminal(ctx context.Context, t *testing.T, read func(context.Context) (operate.Status, error)) *terminal {
	t.Helper()
	term := &terminal{MockTerm: vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24}), t: t, ended: make(chan error, 1)}
	screen, err := tcell.NewTerminfoScreenFromTty(term.MockTerm, tcell.OptNegotiation(false), tcell.OptTerm("xterm"))
	check.OK(t, err)
	w := Watch{Screen: screen, Read: read, Every: time.Second, Advice: func(error) string { return "" }}
	go func() { term.ended <- w.Run(ctx) }()
	synctest.Wait()
	return term
}

// shown returns the contents of the terminal.
func (s *terminal) shown() string {
	s.t.Helper()
	synctest.Wait()
	size, err := s.WindowSize()
	check.OK(s.t, err)
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

// wants waits, in the bubble's time, until the terminal shows a part.
func (s *terminal) wants(part string) {
	s.t.Helper()
	wait.For(s.t, "the page to show "+part, func() bool { return strings.Contains(s.shown(), part) })
}

// wantsNo waits until a part is not shown.
func (s *terminal) wantsNo(part string) {
	s.t.Helper()
	wait.For(s.t, "the page not to show "+part, func() bool { return !strings.Contains(s.shown(), part) })
}

// types sends keys to the page.
func (s *terminal) types(keys string) {
	s.SendRaw([]byte(keys))
	synctest.Wait()
}

// quits ends the page.
func (s *terminal) quits(keys string) {
	s.t.Helper()
	s.types(keys)
	if err := wait.Receive(s.t, "the page to end", s.ended); err != nil {
		s.t.Errorf("it ended with %v", err)
	}
}

// TestWatchOnATerminal tries keys, sizes and ways to end the page.
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

// TestWatchOutlivesFailures: after a failed reading the page shows the error, the previous
// status and its age, until a reading succeeds.
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
		s.wants("orders")
		s.wantsNo("not read")
		down.Store(true)
		s.wants("! not read for 7s, and shown as it was: connection refused")
		s.wants("orders")
		down.Store(false)
		s.wantsNo("not read")
		s.quits("q")
	})
}

// TestWatchReadsOnceAnInterval: readings begin at least an interval apart, and never
// overlap, however often the page is drawn meanwhile.
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
			const readings = 6
			began := time.Now()
			for n := range readings {
				wait.Count(t, "a reading", n+1, func() int { return int(count.Load()) })
				s.types("j")
			}
			want := (readings - 1) * max(takes, time.Second)
			if took := time.Since(began); took < want || took > want+100*time.Millisecond { // of the bubble's time
				t.Errorf("%d readings of %s each took %s, want %s", readings, takes, took, want)
			}
			s.quits("q")
			synctest.Wait()
		})
	}
}
