package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// sayEvery is the time between two lines of a Progress without a terminal.
const sayEvery = 5 * time.Second

// Progress shows how much of some work on tasks is done: a bar on a terminal, elsewhere a
// line every five seconds.
type Progress struct {
	Out  io.Writer
	Name string // of the bar
	// Said is when the last line was printed. The zero time prints the first one at once.
	Said time.Time

	bar *progressbar.ProgressBar
}

// Show shows that done of about all tasks are done. line returns the line.
func (p *Progress) Show(done, all int64, line func() string) {
	if !OnTerminal(p.Out) {
		p.Say(line)
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(all, progressbar.OptionSetWriter(p.Out),
			progressbar.OptionSetDescription(p.Name), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("tasks"), progressbar.OptionClearOnFinish())
	}
	p.bar.ChangeMax64(max(all, 1))
	_ = p.bar.Set64(done) // it only draws
}

// Say prints a line, at most one every five seconds.
func (p *Progress) Say(line func() string) {
	if time.Since(p.Said) >= sayEvery {
		p.Said = time.Now()
		_, _ = fmt.Fprintln(p.Out, line()) // an error has no place to go
	}
}

// Finish clears the bar.
func (p *Progress) Finish() {
	if p.bar != nil {
		_ = p.bar.Finish() // it only draws
	}
}
