package main

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

func cancelCommand(conn *connection) *cobra.Command {
	var name named
	cmd := &cobra.Command{
		Use:   "cancel --topic T --id ID",
		Short: "Removes a task, so that it is not delivered",
		Long: `Removes a task. No scanner delivers it after this command has returned, unless it
had begun to before. Exits with 3 if there is no such task.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return cancel(cmd, conn, name) }),
	}
	name.register(cmd)
	return cmd
}

func cancel(cmd *cobra.Command, conn *connection, name named) error {
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Cancel(cmd.Context(), name.Topic, name.ID); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return conn.print(cmd, fmt.Sprintf("cancelled %s", name), cancelOutput{name, true})
}

// cancelOutput is what cancel prints.
type cancelOutput struct {
	named
	Cancelled bool `json:"cancelled"`
}

func rescheduleCommand(conn *connection) *cobra.Command {
	var name named
	var due dueFlags
	cmd := &cobra.Command{
		Use:   "reschedule --topic T --id ID (--in 30m | --at 2026-12-01T10:00:00Z)",
		Short: "Changes when a task is due, and keeps the rest of it",
		Long:  `Changes when a task is due, and keeps its payload. Exits with 3 if there is no such task.`,
		Args:  cli.NoArguments,
		RunE:  cli.Verb(func(cmd *cobra.Command, _ []string) error { return reschedule(cmd, conn, name, &due) }),
	}
	name.register(cmd)
	due.register(cmd.Flags())
	return cmd
}

func reschedule(cmd *cobra.Command, conn *connection, name named, flags *dueFlags) error {
	when, err := flags.when(cmd.Flags())
	if err != nil {
		return err
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	due, err := client.Reschedule(cmd.Context(), name.Topic, name.ID, when.producer())
	if err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	text := fmt.Sprintf("rescheduled %s, due %s", name, formatTime(due))
	return conn.print(cmd, text, newDueOutput(name, due))
}

func getCommand(conn *connection) *cobra.Command {
	var name named
	cmd := &cobra.Command{
		Use:   "get --topic T --id ID",
		Short: "Prints a stored task as JSON",
		Long: `Prints a stored task as JSON, over several lines or with -o json on one. The
payload is in "payload" where it is text, else in "payload_base64". Exits with 3
if there is no such task.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return get(cmd, conn, name) }),
	}
	name.register(cmd)
	return cmd
}

func get(cmd *cobra.Command, conn *connection, name named) error {
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	stored, err := client.Get(cmd.Context(), name.Topic, name.ID)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	indent := "  "
	if conn.format.Format == cli.JSON {
		indent = ""
	}
	return cli.PrintJSON(cmd.OutOrStdout(), newGetOutput(name, stored), indent)
}

// getOutput is what get prints. Times are RFC 3339, and Unix milliseconds under
// the name with _ms.
type getOutput struct {
	named
	State           task.State `json:"state"`
	Due             string     `json:"due"`
	DueMillis       int64      `json:"due_ms"`
	Scheduled       string     `json:"scheduled"`
	ScheduledMillis int64      `json:"scheduled_ms"`
	// NextAttempt is when the task is looked at next, where that is not its due
	// time: the end of a lease or of a backoff. Absent otherwise.
	NextAttempt string `json:"next_attempt,omitempty"`
	// Attempts that the broker returned or refused.
	Attempts    int               `json:"attempts"`
	Redelivered bool              `json:"redelivered"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	// One of the two is present: Payload where it is valid UTF-8.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	// Reason is why the task was parked or last given back.
	Reason string `json:"reason,omitempty"`
}

func newGetOutput(name named, s producer.Stored) getOutput {
	out := getOutput{
		named:           name,
		State:           s.State,
		Due:             formatTime(s.Due),
		DueMillis:       s.Due.UnixMilli(),
		Scheduled:       formatTime(s.Scheduled),
		ScheduledMillis: s.Scheduled.UnixMilli(),
		Attempts:        max(s.Attempt-1, 0),
		Redelivered:     s.Redelivered,
		ContentType:     s.ContentType,
		Headers:         s.Headers,
		Reason:          s.Reason,
	}
	if out.Headers == nil {
		out.Headers = map[string]string{}
	}
	if s.State != task.Parked && !s.NextAttempt.IsZero() && s.NextAttempt.Sub(s.Due).Abs() >= time.Millisecond {
		out.NextAttempt = formatTime(s.NextAttempt)
	}
	if utf8.Valid(s.Payload) {
		text := string(s.Payload)
		out.Payload = &text
	} else {
		out.PayloadBase64 = s.Payload
	}
	return out
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

// formatTime is RFC 3339 to the millisecond, the resolution of due times.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// clip shortens a name that somebody else chose, for one line of an error.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
