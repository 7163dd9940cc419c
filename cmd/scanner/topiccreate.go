package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

func topicCreate(s *settings) *cobra.Command {
	var dry bool
	var told verdict
	cmd := &cobra.Command{
		Use:   "create TOPIC [key=value...] [--dry-run | --no-wait]",
		Short: "Makes a new topic",
		Long: `Makes a new topic, with the settings that are named and the defaults of all others, as
"scanner topic set" does, and without a question. Exit code 1 if it has a document
already, which stays as it is.`,
		Example: `  scanner topic create orders shards=8 declare.queue=orders.due declare.dead_letter=orders.dead`,
		Args:    oneTopic(func(*cobra.Command, []string) error { return nil }),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withConsul(s, func(_ context.Context, c topicdocs.Documents) error {
				doc, err := set(cmd, s, c, edit{topic: args[0], assignments: args[1:], create: true, dry: dry})
				if err != nil || dry {
					return err
				}
				return told.await(cmd, s, doc)
			})(cmd)
		}),
	}
	cmd.ValidArgsFunction = s.completeAssignments
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	told.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("dry-run", "no-wait")
	return cmd
}
