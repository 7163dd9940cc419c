package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

func topicUndo(s *settings) *cobra.Command {
	var dry bool
	var told verdict
	cmd := &cobra.Command{
		Use: "undo TOPIC [--dry-run | --no-wait]", Short: "Brings back the document from before the newest change of a topic",
		Long: `Brings back the document from before the newest change of a topic, also from before
its removal, of which the tasks that were purged don't come back. The difference is
printed; it is written only if nobody else wrote the document meanwhile. That is a change
as well: undo once more, and what was undone is in force again.

It says what the living scanners make of it, as "scanner topic set" does; --no-wait asks
nobody. A topic that had no document before is removed by "scanner topic rm" alone.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withConsul(s, func(ctx context.Context, c consulTopics) error {
				doc, err := undo(cmd, c, args[0], dry)
				if err != nil || dry {
					return err
				}
				return told.await(cmd, s, doc)
			})(cmd)
		}),
	}
	registerDryRun(cmd, &dry)
	told.register(cmd)
	return cmd
}

// undo writes the document from before the newest change, and returns it as it is now.
func undo(cmd *cobra.Command, c consulTopics, topic string, dry bool) (config.Document, error) {
	h, found, err := c.history(cmd.Context(), topic)
	if err != nil {
		return found, err
	}
	before, err := previous(h)
	if err != nil {
		return found, err
	}
	out, newest := cmd.OutOrStdout(), h.Changes[len(h.Changes)-1]
	fmt.Fprintf(out, "topic %s: undoes change %d, %s\n", topic, newest.Number, author(newest))
	printDifference(out, topic, difference(found, before))
	printLeftBinding(out, found, before)
	if dry {
		_, err := fmt.Fprintf(out, "topic %s: a dry run, nothing was written\n", topic)
		return found, err
	}
	doc, err := c.write(cmd, found, topic, before.Raw)
	if err != nil {
		return doc, err
	}
	fmt.Fprintf(out, "topic %s written\n", topic)
	if newest.Removed {
		_, err = fmt.Fprintf(out, "topic %s is back; tasks that were purged with it are not\n", topic)
	}
	return doc, err
}

// previous is the document from before the newest change, if there was one that scanners
// would read.
func previous(h consul.History) (config.Document, error) {
	fails := func(why string, more ...any) (config.Document, error) {
		return config.Document{}, fmt.Errorf("topic %s: "+why, append([]any{h.Topic}, more...)...)
	}
	if len(h.Changes) < 2 {
		return fails("its history has no document from before the one in force")
	}
	switch before := h.Changes[len(h.Changes)-2]; {
	case before.Removed:
		return fails("before the newest change it had no document; `scanner topic rm %s` removes it", h.Topic)
	case before.Dropped:
		return fails("the document from before the newest change was too large to be kept")
	default:
		doc := config.ParseDocument(h.Topic, before.Document, 0)
		if doc.Err != nil {
			return fails("scanners would not read the document from before the newest change, it has mistakes: %w", doc.Err)
		}
		return doc, nil
	}
}

// author is who made a change, and when, as far as that is known.
func author(c consul.Change) string {
	if c.By == "" {
		return "which another tool made"
	}
	return fmt.Sprintf("%s by %s at %s", c.Verb, c.By, c.At.UTC().Format("2006-01-02T15:04:05Z"))
}
