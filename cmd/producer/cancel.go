package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
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
