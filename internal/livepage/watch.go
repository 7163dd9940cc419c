package livepage

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

// Watch keeps a page on a terminal: it reads the status, draws, and passes keys to the
// page.
type Watch struct {
	Screen tcell.Screen
	// Read returns the fleet's status. It is called at most once in Every, and never while
	// another call runs.
	Read  func(context.Context) (operate.Status, error)
	Every time.Duration
	// Shards shows the shards of the chosen topic at first, not all topics.
	Shards bool
	// Advice returns what to do about an error of Read, "" for none.
	Advice func(error) string

	page page
}

// NewScreen returns the terminal on which this program was started. It fails with a
// cli.UsageError if in or out isn't a terminal.
func NewScreen(in, out any) (tcell.Screen, error) {
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

// Run shows the page until a key or ctx ends it. Both return nil.
func (w *Watch) Run(ctx context.Context) error {
	if err := w.Screen.Init(); err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer w.Screen.Fini() // also after a panic
	w.Screen.HideCursor()
	w.Screen.RegisterRuneFallback('µ', "u")
	w.page = page{every: w.Every, shards: w.Shards}
	w.page.resized(w.Screen.Size())
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
		case event := <-w.Screen.EventQ():
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
func (w *Watch) look(ctx context.Context) reading {
	status, err := w.Read(ctx)
	r := reading{status: status, at: time.Now()}
	if err != nil {
		r.failed = err.Error() + w.Advice(err)
	}
	return r
}

// take passes an event of the terminal to the page, and reports whether the page ends.
func (w *Watch) take(event tcell.Event) (end bool, err error) {
	switch event := event.(type) {
	case *tcell.EventKey:
		return w.page.pressed(keyName(event), time.Now()), nil
	case *tcell.EventResize:
		w.page.resized(event.Size())
		w.Screen.Sync()
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
func (w *Watch) draw() {
	w.Screen.Clear()
	for y, line := range w.page.lines(time.Now()) {
		style := tcell.StyleDefault
		if strings.HasPrefix(line, "!") || strings.HasPrefix(line, ">") {
			style = style.Bold(true)
		}
		w.Screen.PutStrStyled(0, y, line, style)
	}
	w.Screen.Show()
}
