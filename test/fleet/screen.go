package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/gdamore/tcell/v3/vt"
)

// Screen is a program on a terminal of its own, and the text that a person would see
// there. It works on Linux only.
type Screen struct {
	ours *os.File
	term vt.MockTerm
	cmd  *exec.Cmd
	gone chan error // the program's exit, sent after all its output is on the terminal
}

// StartScreen starts a program on a terminal with the given columns and rows; ctx kills
// it. Stdin and Told of the command are ignored.
func StartScreen(ctx context.Context, c Command, columns, rows int) (*Screen, error) {
	ours, programs, err := openTerminal(columns, rows)
	if err != nil {
		return nil, err
	}
	s := &Screen{ours: ours, gone: make(chan error, 1),
		term: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(columns), Y: vt.Row(rows)})}
	s.cmd = exec.CommandContext(ctx, c.Path, c.Args...) //nolint:gosec // the caller chooses the program
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = programs, programs, programs
	s.cmd.Env = append(environ(), append([]string{"TERM=xterm", "LC_ALL=C.UTF-8"}, c.Env...)...)
	s.cmd.SysProcAttr = terminalAttr()
	if err := s.term.Start(); err != nil {
		return nil, errors.Join(err, ours.Close(), programs.Close())
	}
	started := make(chan error)
	go func() { // on a locked thread: see startProcess
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := errors.Join(s.cmd.Start(), programs.Close())
		if started <- err; err == nil {
			s.gone <- s.follow()
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s on a terminal: %w", c.Path, err), s.term.Stop(), ours.Close())
	}
	return s, nil
}

// follow copies the program's output to the terminal until the program ends.
func (s *Screen) follow() error {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(s.term, s.ours) // ends with an error when the program's end is closed
	}()
	err := s.cmd.Wait()
	<-copied
	return err
}

// Type sends keys to the program, encoded as a terminal does.
func (s *Screen) Type(keys string) error {
	_, err := s.ours.WriteString(keys)
	return err
}

// Resize changes the size of the terminal; the kernel notifies the program.
func (s *Screen) Resize(columns, rows int) error {
	s.term.SetSize(vt.Coord{X: vt.Col(columns), Y: vt.Row(rows)})
	return sizeTerminal(s.ours, columns, rows)
}

// Text returns the text on the terminal, without blanks at the ends of lines.
func (s *Screen) Text() string {
	_ = s.term.Drain() // never fails: the terminal runs until Wait
	size, err := s.term.WindowSize()
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for y := range size.Height {
		var line strings.Builder
		for x := range size.Width {
			cell := s.term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
			if cell.C == "" {
				cell.C = " "
			}
			line.WriteString(cell.C)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// Wait waits until the program ends and returns its exit code, or -1 if a signal ended
// it.
func (s *Screen) Wait(ctx context.Context) (code int, err error) {
	select {
	case err = <-s.gone:
	case <-ctx.Done():
		return -1, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return s.cmd.ProcessState.ExitCode(), errors.Join(err, s.term.Stop(), s.ours.Close())
}
