package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/task"
)

// historyOutput is the output of get --history.
type historyOutput struct {
	named
	Events []eventOutput `json:"events"`
}

// eventOutput is one event. Due and Reason are "" where the event has none.
type eventOutput struct {
	Kind   task.EventKind `json:"kind"`
	At     string         `json:"at"`
	Due    string         `json:"due,omitempty"`
	Reason string         `json:"reason,omitempty"`
}

// history prints the last events of a task. It fails with task.ErrNotFound if there are none.
func (c *connection) history(cmd *cobra.Command, r *ndjson.Request) error {
	client, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	events, err := client.History(cmd.Context(), r.Topic, r.ID)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if len(events) == 0 {
		return fmt.Errorf("history: %s: %w in its history; the topic's setting history says how long one is kept",
			newNamed(r), task.ErrNotFound)
	}
	out := historyOutput{named: newNamed(r)}
	for _, e := range events {
		one := eventOutput{Kind: e.Kind, At: duetime.Text(e.At), Reason: e.Reason}
		if !e.Due.IsZero() {
			one.Due = duetime.Text(e.Due)
		}
		out.Events = append(out.Events, one)
	}
	return c.print(cmd, out.text(), out)
}

// text has a line for each event.
func (o historyOutput) text() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 2, 0, 2, ' ', 0) // its writes can't fail
	_, _ = fmt.Fprintln(w, "AT\tEVENT\tDUE\tREASON")
	for _, e := range o.Events {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.At, e.Kind, e.Due, cli.OneLine(e.Reason))
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
