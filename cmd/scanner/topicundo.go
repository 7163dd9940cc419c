package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

func topicUndo(s *settings) *cobra.Command {
	var dry bool
	var to uint64
	var told verdict
	cmd := &cobra.Command{
		Use: "undo TOPIC [--to N] [--dry-run | --no-wait]", Short: "Brings back the document from before the newest change of a topic",
		Long: `Brings back the document from before the newest change of a topic, also from before
its removal, of which the tasks that were purged don't come back. Documents with mistakes
are passed over. With --to it brings back the document that change N left, by the numbers
of "scanner topic history". The difference is printed; it is written only if nobody else
wrote the document meanwhile. That is a change as well: undo once more, and what was
undone is in force again.

It says what the living scanners make of it, as "scanner topic set" does; --no-wait asks
nobody. A topic that had no document before is removed by "scanner topic rm" alone.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to") && to == 0 {
				return cli.UsageError("--to 0: changes count from 1")
			}
			return withConsul(s, func(ctx context.Context, c topicdocs.Documents) error {
				doc, err := undo(cmd, c, args[0], to, dry)
				if err != nil || dry {
					return err
				}
				return told.await(cmd, s, doc)
			})(cmd)
		}),
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "bring back the document of this change, a number of the history (default the one before the newest)")
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	told.register(cmd)
	return cmd
}

// undo writes the document of an earlier change, of the one before the newest if to is 0,
// and returns it as it is now.
func undo(cmd *cobra.Command, c topicdocs.Documents, topic string, to uint64, dry bool) (config.Document, error) {
	h, found, err := c.History(cmd.Context(), topic)
	if err != nil {
		return found, err
	}
	at, before, err := goal(h, to)
	if err != nil {
		return found, fmt.Errorf("topic %s: %w", topic, err)
	}
	out, newest := cmd.OutOrStdout(), h.Changes[len(h.Changes)-1]
	if !newest.Removed && bytes.Equal(before.Raw, found.Raw) {
		_, err := fmt.Fprintf(out, "topic %s: nothing to change, that document is in force\n", topic)
		return found, err
	}
	printUndone(out, h, at)
	printDifference(out, topic, difference(found, before))
	printLeftBinding(out, found, before)
	if dry {
		_, err := fmt.Fprintf(out, "topic %s: a dry run, nothing was written\n", topic)
		return found, err
	}
	doc, err := write(cmd, c, found, topic, before.Raw)
	if err != nil {
		return doc, err
	}
	fmt.Fprintf(out, "topic %s written\n", topic)
	if newest.Removed {
		_, err = fmt.Fprintf(out, "topic %s is back; tasks that were purged with it are not\n", topic)
	}
	return doc, err
}

// printUndone says which changes are undone by going back to the one at a place.
func printUndone(out io.Writer, h consul.History, at int) {
	last := len(h.Changes) - 1
	for i := last; i > at; i-- {
		text := fmt.Sprintf("undoes change %d, %s", h.Changes[i].Number, described(h.Changes[i]))
		if i < last && !h.Changes[i].Removed && !h.Changes[i].Dropped && config.ParseDocument(h.Topic, h.Changes[i].Document, 0).Err != nil {
			text = fmt.Sprintf("passes over change %d, whose document has mistakes", h.Changes[i].Number)
		}
		fmt.Fprintf(out, "topic %s: %s\n", h.Topic, text)
	}
}

// goal finds the document to go back to, and its place in the history: that of the change
// with a number, or with 0 the nearest one before the newest change that scanners would
// read.
func goal(h consul.History, to uint64) (at int, doc config.Document, err error) {
	if to > 0 {
		if at = slices.IndexFunc(h.Changes, func(c consul.Change) bool { return c.Number == to }); at < 0 {
			return at, doc, fmt.Errorf("its history has no change %d, but %d to %d", to, h.Changes[0].Number, h.Changes[len(h.Changes)-1].Number)
		}
		doc, err = left(h, at)
		return at, doc, err
	}
	err = errors.New("its history has no document from before the one in force")
	for at = len(h.Changes) - 2; at >= 0; at-- {
		doc, err = left(h, at)
		var mistakes config.Errors
		if !errors.As(err, &mistakes) {
			return at, doc, err
		}
	}
	return at, doc, err
}

// left is the document that a change left. It is an error if there was none, or scanners
// would not read it.
func left(h consul.History, at int) (config.Document, error) {
	switch c := h.Changes[at]; {
	case c.Removed:
		return config.Document{}, fmt.Errorf("after change %d it had no document; `scanner topic rm %s` removes it", c.Number, h.Topic)
	case c.Dropped:
		return config.Document{}, fmt.Errorf("the document of change %d was too large to be kept", c.Number)
	default:
		doc := config.ParseDocument(h.Topic, c.Document, 0)
		if doc.Err != nil {
			return doc, fmt.Errorf("scanners would not read the document of change %d, it has mistakes: %w", c.Number, doc.Err)
		}
		return doc, nil
	}
}

// described is who made a change, and when, and why, if that is known.
func described(c consul.Change) string {
	if c.By == "" {
		return "which another tool made"
	}
	text := fmt.Sprintf("%s by %s at %s", c.Verb, c.By, c.At.UTC().Format("2006-01-02T15:04:05Z"))
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	return text
}
