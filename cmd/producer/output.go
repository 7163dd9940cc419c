package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// instant is RFC 3339 to the millisecond, the resolution of due times.
const instant = "2006-01-02T15:04:05.000Z07:00"

// format is how a verb prints its result: "text" or "json". It is a pflag.Value.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

// String, Set and Type are what pflag asks of a flag's value.
func (f *format) String() string { return string(*f) }

// Set takes text or json.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatText, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be text or json")
}

// Type names the values in the help text.
func (f *format) Type() string { return "text|json" }

// print writes a verb's result: the text for people, or value as one line of JSON.
func (f *format) print(w io.Writer, text string, value any) error {
	if *f == formatText {
		_, err := fmt.Fprintln(w, text)
		return err
	}
	return printJSON(w, value, "")
}

func printJSON(w io.Writer, value any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(value)
}

// named is what every verb's JSON begins with.
type named struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
}

// String is the name as text for people; the ID quoted, as it may hold anything.
func (n named) String() string { return fmt.Sprintf("%s %q", n.Topic, n.ID) }

// dueOutput is what schedule and reschedule print.
type dueOutput struct {
	named
	Due       string `json:"due"`
	DueMillis int64  `json:"due_ms"`
}

func newDueOutput(name named, due time.Time) dueOutput {
	return dueOutput{named: name, Due: formatTime(due), DueMillis: due.UnixMilli()}
}

func formatTime(t time.Time) string { return t.UTC().Format(instant) }

// clip shortens a name that somebody else chose, for one line of an error.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
