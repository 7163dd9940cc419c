package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/task"
)

func pipeCommand(conn *connection) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "pipe [--topic T]",
		Short: "Serves a program in any language: a request a line in, an answer a line out",
		Long: `Serves a program in any language: reads requests from standard input, one JSON
object a line, and writes an answer to each on standard output, one JSON object a
line, in the same order.

  {"verb":"schedule","topic":"orders","id":"o-1","in":"30m","payload":"..."}
  {"verb":"reschedule","topic":"orders","id":"o-1","at":"2026-12-01T10:00:00Z"}
  {"verb":"get","topic":"orders","id":"o-1"}
  {"verb":"cancel","topic":"orders","id":"o-1"}

schedule takes the fields of a line of load, and "if_absent". An answer holds what the
verb prints with -o json, and "line", "verb" and "code": the exit code the verb would
have had. With a code other than 0 there are "error" and "retry" instead, which tells
whether the same request may do better later. A line that is wrong is answered like that,
and the pipe goes on.

Don't wait for an answer before the next request: many are on their way at a time.
Those for one ID are done one after the other. At the end of the input what was read
is answered, and the exit code is 0. Ctrl-C stops reading and answers what was read.`,
		Example: `  producer pipe --topic orders < requests.ndjson > answers.ndjson`,
		Args:    cli.NoArguments,
		RunE:    cli.Verb(func(cmd *cobra.Command, _ []string) error { return pipe(cmd, conn, topic) }),
	}
	cmd.Flags().StringVar(&topic, "topic", "", "of requests that name none")
	return cmd
}

func pipe(cmd *cobra.Command, conn *connection, topic string) error {
	if topic != "" {
		if err := task.CheckTopic(topic); err != nil {
			return err
		}
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	p := newPiping(client, topic, conn.maxPayload)
	if err := p.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	return nil
}
