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

// watch keeps a page on a terminal: it reads the status, draws, and passes keys to the
// page.
type watch struct {
	screen tcell.Screen
	// read returns the fleet's status. It is called at most once an interval, and never
	// while another call runs.
	read func(context.Context) (operate.Status, error)
	page page
}

// newScreen returns the terminal on which this program was started. It fails with a
// cli.UsageError if in or out isn't a terminal.
func newScreen(in, out any) (tcell.Screen, error) {
	if !cli.OnTerminal(in) || !cli.OnTerminal(out) {
		return nil, cli.UsageError("--watch needs a terminal; without one use -o json")
	}
	if os.Getenv("TERM") == "dumb" {
		return nil, cli.UsageError("--watch needs a terminal that can move its cursor, and TERM is dumb; use -o json")
	}
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII) // the page is ASCII except for names
	// Without negotiation: some terminals answer late, into the shell that runs afterwards.
	return tcell.NewScreen(tcell.OptNegotiation(false), tcell.OptSanitizeContent(true))
}

// run shows the page until a key or ctx ends it. Both return nil.
func (w *watch) run(ctx context.Context) error {
	if err := w.screen.Init(); err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer w.screen.Fini() // also after a panic
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

// take passes an event of the terminal to the page, and reports whether the page ends.
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

// keyName returns a key's name as page.pressed takes it, "" for other keys.
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

// draw shows the page; the library sends only the differences to the terminal. Lines
// about problems and the chosen topic are bold. They also begin with ! or >, so that the
// page is complete without bold text.
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
