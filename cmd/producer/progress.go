package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, and nothing elsewhere. Its methods may be
// called from several goroutines.
type progress struct {
	mu  sync.Mutex // progressbar's Clear takes no lock of its own
	bar *progressbar.ProgressBar
}

// newProgress draws on w if that is a terminal. The size in bytes of what is
// loaded makes it a bar; -1, for a size nobody knows, a spinner with the rate.
func newProgress(w io.Writer, size int64) *progress {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &progress{}
	}
	return &progress{bar: progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("load"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(size >= 0),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish(),
	)}
}

// add moves the bar on.
func (p *progress) add(bytes int) {
	p.draw(func() error { return p.bar.Add(bytes) })
}

// clear makes room for a line of text; the next add draws the bar again.
func (p *progress) clear() {
	p.draw(func() error { return p.bar.Clear() })
}

// finish removes the bar.
func (p *progress) finish() {
	p.draw(func() error { return p.bar.Finish() })
}

// draw does one thing to the bar, if there is one. A bar that can't be drawn is
// no reason to stop.
func (p *progress) draw(step func() error) {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = step()
}
