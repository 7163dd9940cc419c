package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

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
