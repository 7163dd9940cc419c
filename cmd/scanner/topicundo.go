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
		Use:   "undo TOPIC [--to N] [--dry-run | --no-wait]",
		Short: "Restores the document from before the newest change of a topic",
		Long: `Restores the document from before the newest change of a topic. It also restores the
document of a removed topic, but not its purged tasks. Documents with mistakes are
skipped. --to N restores the document that change N left; "scanner topic history" shows
the numbers. The difference is printed. The document is written only if nobody else
changed it in the meantime. An undo is itself a change: a second one reverts the first.

It reports whether the live scanners apply the document, as "scanner topic set" does;
--no-wait skips this report. If a topic had no document before, undo fails: only
"scanner topic rm" removes the topic.`,
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
	cmd.Flags().Uint64Var(&to, "to", 0, "restore the document of this change, a number of the history (default the one "+
		"before the newest)")
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	told.register(cmd)
	return cmd
}

// undo writes the document that change to left, or if to is 0 the one from before the
// newest change, and returns it.
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

// printUndone prints the changes after index at, which an undo to that change reverts.
func printUndone(out io.Writer, h consul.History, at int) {
	last := len(h.Changes) - 1
	for i := last; i > at; i-- {
		text := fmt.Sprintf("undoes change %d, %s", h.Changes[i].Number, described(h.Changes[i]))
		if i < last && !h.Changes[i].Removed && !h.Changes[i].Dropped && config.ParseDocument(h.Topic, h.Changes[i].Document,
			0).Err != nil {
			text = fmt.Sprintf("passes over change %d, whose document has mistakes", h.Changes[i].Number)
		}
		fmt.Fprintf(out, "topic %s: %s\n", h.Topic, text)
	}
}

// goal returns the document to restore and its index in the history. It is the document
// of change to. If to is 0, it is the nearest document before the newest change that
// scanners would read.
func goal(h consul.History, to uint64) (at int, doc config.Document, err error) {
	if to > 0 {
		if at = slices.IndexFunc(h.Changes, func(c consul.Change) bool { return c.Number == to }); at < 0 {
			return at, doc, fmt.Errorf("its history has no change %d, but %d to %d", to, h.Changes[0].Number,
				h.Changes[len(h.Changes)-1].Number)
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

// left returns the document that a change left. It fails if there was none, or if
// scanners would not read it.
func left(h consul.History, at int) (config.Document, error) {
	switch c := h.Changes[at]; {
	case c.Removed:
		return config.Document{}, fmt.Errorf("after change %d it had no document; `scanner topic rm %s` removes it", c.Number,
			h.Topic)
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

// described returns the verb, the author, the time and the reason of a change, if known.
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
