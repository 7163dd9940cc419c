package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/task"
)

// The exit codes, which scripts hold on to.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitExists   = 4
)

// usageError is a command line that asks for nothing that could be done.
type usageError string

func (e usageError) Error() string { return string(e) }

// runError is what a verb ended with after its command line was understood.
// Every other error comes from cobra, and is about the command line.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

// verb marks the errors of a command's own work, to tell them from cobra's.
func verb(work func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := work(cmd); err != nil {
			return runError{err}
		}
		return nil
	}
}

// noArguments refuses what is neither a flag nor a command.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usageError(fmt.Sprintf("unknown command %q", args[0]))
	}
	return usageError(fmt.Sprintf("unexpected argument %q; a value follows its flag", args[0]))
}

// report writes an error as one line to w and returns the exit code for it.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	var usage usageError
	var ran runError
	if errors.As(err, &usage) || !errors.As(err, &ran) {
		fmt.Fprintf(w, "%s: %s; see %s --help\n", cmd.Root().Name(), oneLine(err.Error()), cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(w, "%s: %s\n", cmd.Root().Name(), oneLine(err.Error()+advice(err)))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return exitNotFound
	case errors.Is(err, task.ErrExists):
		return exitExists
	default:
		return exitFailed
	}
}

// advice is what to do about an error that does not say so itself.
func advice(err error) string {
	var unreachable *net.OpError
	var unknownName *net.DNSError
	text := err.Error()
	switch {
	case errors.Is(err, task.ErrExists):
		return "; without --if-absent it is replaced"
	case errors.Is(err, context.Canceled):
		return "; interrupted"
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"), strings.Contains(text, "NOPERM"):
		return "; check redis.username and redis.password in --config, or DUEFLEET_REDIS_USERNAME and DUEFLEET_REDIS_PASSWORD"
	case errors.As(err, &unreachable), errors.As(err, &unknownName), errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return "; check that Redis runs there, and --redis-addr, --config or DUEFLEET_REDIS_ADDRS"
	default:
		return ""
	}
}

// oneLine keeps a text on one line, and a terminal safe from what came out of
// somebody's data.
func oneLine(s string) string {
	s = strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "; ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
