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
		Short: "Creates a new topic",
		Long: `Creates a new topic with the given settings and the defaults of all others, as
"scanner topic set" does, but without asking. If the topic has a document already, the
document stays as it is and the exit code is 1.`,
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
