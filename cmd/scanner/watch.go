package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
)

// The bounds of --interval, and its default.
const (
	leastInterval   = 200 * time.Millisecond
	mostInterval    = time.Minute
	defaultInterval = time.Second
)

// watch keeps a page on a terminal: it reads, draws and takes keys, and what they mean is
// the page's affair.
type watch struct {
	screen tcell.Screen
	// read looks at the fleet. It is called once an interval at most, and never while
	// a call is under way.
	read func(context.Context) (operate.Status, error)
	page page
}

// newScreen is the terminal that this program was started on. A pipe or a file in the
// place of its input or output is a UsageError.
func newScreen(in, out any) (tcell.Screen, error) {
	if !cli.OnTerminal(in) || !cli.OnTerminal(out) {
		return nil, cli.UsageError("--watch needs a terminal; without one take -o json")
	}
	if os.Getenv("TERM") == "dumb" {
		return nil, cli.UsageError("--watch needs a terminal that can move its cursor, and TERM is dumb; take -o json")
	}
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII) // the page is ASCII but for names
	// Nothing is asked of the terminal: some answer late, into the shell that comes after.
	return tcell.NewScreen(tcell.OptNegotiation(false), tcell.OptSanitizeContent(true))
}

// run shows the page until a key or ctx ends it, which is no error.
func (w *watch) run(ctx context.Context) error {
	if err := w.screen.Init(); err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer w.screen.Fini() // after a panic, too
	w.screen.HideCursor()
	w.screen.RegisterRuneFallback('µ', "u")
	w.page.resized(w.screen.Size())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readings := make(chan reading, 1)
	due := time.NewTimer(0)
	defer due.Stop()
	clock := time.NewTicker(time.Second) // for the ages on the page
	defer clock.Stop()
	for {
		w.draw()
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.screen.EventQ():
			if end, err := w.take(event); end || err != nil {
				return err
			}
		case <-due.C:
			w.page.began(time.Now())
			go func() { readings <- w.look(ctx) }()
		case r := <-readings:
			due.Reset(time.Until(w.page.asked.Add(w.page.every)))
			w.page.ended(r)
		case <-clock.C:
		}
	}
}

// look reads once.
func (w *watch) look(ctx context.Context) reading {
	status, err := w.read(ctx)
	r := reading{status: status, at: time.Now()}
	if err != nil {
		r.failed = err.Error() + advice(err)
	}
	return r
}

// take hands the page what happened on the terminal.
func (w *watch) take(event tcell.Event) (end bool, err error) {
	switch event := event.(type) {
	case *tcell.EventKey:
		return w.page.pressed(keyName(event), time.Now()), nil
	case *tcell.EventResize:
		w.page.resized(event.Size())
		w.screen.Sync()
	case *tcell.EventError:
		return true, fmt.Errorf("read the terminal: %w", event)
	}
	return false, nil
}

// keyName is a key as the page knows it.
func keyName(event *tcell.EventKey) string {
	switch event.Key() {
	case tcell.KeyUp:
		return "up"
	case tcell.KeyDown:
		return "down"
	case tcell.KeyPgUp:
		return "page up"
	case tcell.KeyPgDn:
		return "page down"
	case tcell.KeyEnter:
		return "enter"
	case tcell.KeyEscape:
		return "esc"
	case tcell.KeyCtrlC:
		return "ctrl-c"
	case tcell.KeyRune:
		return event.Str()
	default:
		return ""
	}
}

// draw shows the page; the library sends what differs from what the terminal shows. What
// is wrong, and the chosen topic, are bold: the characters in front say the same.
func (w *watch) draw() {
	w.screen.Clear()
	for y, line := range w.page.lines(time.Now()) {
		style := tcell.StyleDefault
		if strings.HasPrefix(line, "!") || strings.HasPrefix(line, ">") {
			style = style.Bold(true)
		}
		w.screen.PutStrStyled(0, y, line, style)
	}
	w.screen.Show()
}
