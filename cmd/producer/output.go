package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

// instant is RFC 3339 to the millisecond, the resolution of due times.
const instant = "2006-01-02T15:04:05.000Z07:00"

// print writes a verb's result: the text for people, or value as one line of JSON.
func (c *connection) print(cmd *cobra.Command, text string, value any) error {
	if c.format.Format == cli.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), value, "")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
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
