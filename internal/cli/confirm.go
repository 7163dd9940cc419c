package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// ErrDeclined means that the user didn't answer the question with yes.
var ErrDeclined = errors.New("not confirmed")

// Confirmation asks the user before a verb deletes something for ever or changes many
// things at once.
type Confirmation struct {
	// Yes is true if --yes was given.
	Yes bool
	// Deed names what the verb does. Defaults to Deletes.
	Deed Deed
}

// Deed holds two forms of the word for an action, as in "delete" and "deleted".
type Deed struct{ does, done string }

// Deletes is the Deed of a verb that deletes something for ever.
func Deletes() Deed { return Deed{"delete", "deleted"} }

// Writes is the Deed of a verb that deletes nothing.
func Writes() Deed { return Deed{"write", "written"} }

// Replays is the Deed of a verb that makes tasks due.
func Replays() Deed { return Deed{"replay", "replayed"} }

// RunsNow is the Deed of a verb that makes waiting tasks due.
func RunsNow() Deed { return Deed{"run now", "made due"} }

// Moves is the Deed of a verb that gives tasks other due times.
func Moves() Deed { return Deed{"move", "moved"} }

// Cancels is the Deed of a verb that removes tasks.
func Cancels() Deed { return Deed{"cancel", "cancelled"} }

func (c Confirmation) deed() Deed {
	if c.Deed == (Deed{}) {
		return Deletes()
	}
	return c.Deed
}

// Does returns the word for the question, as in "delete".
func (c Confirmation) Does() string { return c.deed().does }

// Register adds the flag --yes.
func (c *Confirmation) Register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.Yes, "yes", "y", false,
		c.deed().does+" without a question; required where there is no terminal to ask on")
}

// Ask returns nil if --yes was given or the user at the terminal agrees. Without --yes
// and without a terminal it returns a UsageError. what is the question's text, as in
// "delete topic orders with 200,000 tasks".
func (c Confirmation) Ask(cmd *cobra.Command, what string) error {
	if c.Yes {
		return nil
	}
	done := c.deed().done
	if !OnTerminal(cmd.InOrStdin()) || !OnTerminal(cmd.ErrOrStderr()) {
		return UsageError("this would " + what + ": without a terminal to ask on it needs --yes; nothing was " + done)
	}
	if err := question(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), what); err != nil {
		return fmt.Errorf("%w; nothing was %s", err, done)
	}
	return nil
}

// question asks on out and reads one line from in, until ctx ends. The error is
// ErrDeclined unless the line is y or yes.
func question(ctx context.Context, in io.Reader, out io.Writer, what string) error {
	if _, err := fmt.Fprintf(out, "%s? [y/N] ", what); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() { // a read of a terminal can't be interrupted
		line, _ := bufio.NewReader(in).ReadString('\n') // an end or an error means no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(out) // end the line of the question
		return ErrDeclined
	case line := <-answer:
		if line != "y" && line != "yes" {
			return ErrDeclined
		}
		return nil
	}
}

// OnTerminal reports whether a stream of the program is a terminal.
func OnTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // a file descriptor is small
}

// Counted returns a number of tasks for people: "1 task", "200,000 tasks".
func Counted(n int64) string {
	if n == 1 {
		return "1 task"
	}
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits + " tasks"
}
