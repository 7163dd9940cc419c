// Package cli holds the common parts of the programs scanner and producer: exit codes,
// errors on one line, and output formats. A verb is a command of such a program, for
// example "topic set".
package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/task"
)

// These are the exit codes. Scripts rely on them. Done is success, and Failed any error
// without a code of its own. Usage is a mistake in the command line. NotFound means that
// a task or topic doesn't exist, and Exists that it already does. Unhealthy is for verbs
// that check a fleet.
const (
	Done      = 0
	Failed    = 1
	Usage     = 2
	NotFound  = 3
	Exists    = 4
	Unhealthy = 4
)

// ErrUnhealthy: the fleet isn't delivering normally.
var ErrUnhealthy = errors.New("not healthy")

// UsageError is a mistake in the command line.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// ranError is an error of a verb that has run. Every other error comes from cobra and is
// about the command line.
type ranError struct{ error }

func (e ranError) Unwrap() error { return e.error }

// Verb returns work with its errors marked as a verb's own, so that Report can tell them
// from cobra's.
func Verb(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := work(cmd, args); err != nil {
			return ranError{err}
		}
		return nil
	}
}

// Group returns a command that only holds other commands. Without one of them it is a
// UsageError that names them.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	names := make([]string, len(verbs))
	for i, verb := range verbs {
		names[i] = verb.Name()
	}
	last := len(names) - 1
	text := strings.TrimPrefix(strings.Join(names[:last], ", ")+" or "+names[last], " or ")
	group := &cobra.Command{
		Use: use, Short: short, Args: NoArguments,
		RunE: func(*cobra.Command, []string) error { return UsageError("name a command: " + text) },
	}
	group.AddCommand(verbs...)
	return group
}

// NoArguments refuses arguments that are neither a flag nor a command.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return UsageError(fmt.Sprintf("unknown command %q", args[0]))
	}
	return UsageError(fmt.Sprintf("unexpected argument %q; a value follows its flag", args[0]))
}

// TopicArgument accepts the topic as the only argument, in place of the flag --topic, and
// sets that flag. If both are given, they must name the same topic.
func TopicArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := NoArguments(cmd, args[1:]); err != nil {
		return err
	}
	topic, flag := args[0], cmd.Flags().Lookup("topic")
	switch {
	case topic == "":
		return UsageError("the topic is empty")
	case flag.Changed && flag.Value.String() != topic:
		return UsageError(fmt.Sprintf("unexpected argument %q; a value follows its flag, and the topic is %q by --topic",
			topic, flag.Value))
	}
	return cmd.Flags().Set(flag.Name, topic)
}

// Report writes an error to w on one line and returns its exit code. It appends the
// advice for an error of a verb.
func Report(w io.Writer, cmd *cobra.Command, err error, advice func(error) string) int {
	if err == nil {
		return Done
	}
	var usage UsageError
	var ran ranError
	if errors.As(err, &usage) || !errors.As(err, &ran) {
		_, _ = fmt.Fprintf(w, "%s: %s; see %s --help\n", cmd.Root().Name(), OneLine(err.Error()), cmd.CommandPath())
		return Usage
	}
	_, _ = fmt.Fprintf(w, "%s: %s\n", cmd.Root().Name(), OneLine(err.Error()+advice(err)))
	return Code(err)
}

// Code returns the exit code for the error of a verb's work.
func Code(err error) int {
	var usage UsageError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &usage):
		return Usage
	case errors.Is(err, task.ErrNotFound):
		return NotFound
	case errors.Is(err, task.ErrExists):
		return Exists
	case errors.Is(err, ErrUnhealthy):
		return Unhealthy
	default:
		return Failed
	}
}

// OneLine returns a text on one line. It replaces unprintable characters, which could
// control a terminal.
func OneLine(s string) string {
	s = strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "; ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// ID returns a task's ID for a table. A plain ID stays as it is. Any other becomes a JSON
// string with escapes for everything unprintable; `producer cancel --file` reads that
// form. Bytes that aren't UTF-8, which no task's ID has, become \ufffd.
func ID(id string) string {
	plain := func(r rune) bool {
		return unicode.IsPrint(r) && r != ' ' && r != '"' && r != '\\' && r != utf8.RuneError
	}
	if id != "" && !strings.ContainsFunc(id, func(r rune) bool { return !plain(r) }) {
		return id
	}
	var quoted strings.Builder
	quoted.WriteByte('"')
	for _, r := range id {
		switch {
		case r == '"' || r == '\\':
			quoted.WriteString("\\" + string(r))
		case plain(r) || r == ' ':
			quoted.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&quoted, "\\u%04x", unit)
			}
		}
	}
	quoted.WriteByte('"')
	return quoted.String()
}

// Format is the output format of a verb, the value of the flag --output.
type Format string

// The formats.
const (
	Text  Format = "text"
	Table Format = "table"
	JSON  Format = "json"
	// NDJSON prints a list as one JSON element a line; JSON prints one array.
	NDJSON Format = "ndjson"
)

// FormatFlag is a Format that accepts JSON and one other format, its default. A list's
// flag accepts NDJSON too.
type FormatFlag struct {
	Format
	plain Format
	list  bool
}

// NewFormatFlag returns the flag value for a verb that prints plain by default.
func NewFormatFlag(plain Format) FormatFlag { return FormatFlag{Format: plain, plain: plain} }

// NewListFlag returns the flag value for a verb that prints a list, by default as a
// table.
func NewListFlag() FormatFlag { return FormatFlag{Format: Table, plain: Table, list: true} }

// String returns the chosen format.
func (f *FormatFlag) String() string { return string(f.Format) }

// Set accepts one of the flag's formats.
func (f *FormatFlag) Set(s string) error {
	switch format := Format(s); {
	case format == f.plain, format == JSON, format == NDJSON && f.list:
		f.Format = format
		return nil
	case f.list:
		return fmt.Errorf("must be %s, json or ndjson", f.plain)
	default:
		return fmt.Errorf("must be %s or json", f.plain)
	}
}

// Type returns the formats for the help text.
func (f *FormatFlag) Type() string {
	if f.list {
		return string(f.plain) + "|json|ndjson"
	}
	return string(f.plain) + "|json"
}

// PrintJSON writes value as JSON, on one line if indent is "".
func PrintJSON(w io.Writer, value any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(value)
}

// JSONList writes a list element by element, each on its own line: as one array, or as
// NDJSON.
type JSONList struct {
	w     *bufio.Writer
	lines bool
	begun bool
}

// NewJSONList returns a list that writes to w in the format JSON or NDJSON.
func NewJSONList(w io.Writer, format Format) *JSONList {
	return &JSONList{w: bufio.NewWriter(w), lines: format == NDJSON}
}

// Add writes an element. Close also returns the error of a failed write.
func (l *JSONList) Add(value any) error {
	var text bytes.Buffer
	if err := PrintJSON(&text, value, ""); err != nil {
		return err
	}
	if !l.lines {
		_, _ = l.w.WriteString(l.separator()) // bufio keeps the error
		text.Truncate(text.Len() - 1)
	}
	_, err := l.w.Write(text.Bytes())
	return err
}

func (l *JSONList) separator() string {
	if l.begun {
		return ",\n "
	}
	l.begun = true
	return "["
}

// Close ends the list, even an incomplete one. The caller's exit code must say that it is
// incomplete.
func (l *JSONList) Close() error {
	switch {
	case l.lines:
	case l.begun:
		_, _ = l.w.WriteString("]\n") // bufio keeps the error
	default:
		_, _ = l.w.WriteString("[]\n")
	}
	return l.w.Flush()
}
