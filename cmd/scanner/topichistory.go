package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

func topicHistory(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	cmd := &cobra.Command{
		Use: "history TOPIC", Short: "Lists the last 20 documents of a topic, who set them and when",
		Long: `Lists the last 20 documents of a topic, the newest last. Each line has the time of the
change, its author (--as, else the name of Consul's token, else the user), the verb, the
changed settings, and the --reason. A document that another tool wrote or removed, such
as "consul kv put", or that is older than the history, has no time and no author. The
history outlives the topic. -o json also prints the documents.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withConsul(s, func(ctx context.Context, c topicdocs.Documents) error {
				h, _, err := c.History(ctx, args[0])
				if err != nil {
					return err
				}
				if format.Format == cli.JSON {
					return cli.PrintJSON(cmd.OutOrStdout(), describeHistory(h), "  ")
				}
				return printHistory(cmd.OutOrStdout(), describeHistory(h))
			})(cmd)
		}),
	}
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// historyLine is one change of `topic history -o json`.
type historyLine struct {
	Number  uint64        `json:"number"`
	At      time.Time     `json:"at,omitzero"`
	By      string        `json:"by,omitempty"`
	Verb    string        `json:"verb,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	What    string        `json:"what"`
	Changes []settingLine `json:"changes"`
	// Document is empty if it was removed, or was too large to be kept.
	Document string `json:"document"`
	Error    string `json:"error,omitempty"`
}

// settingLine is a setting that differs from the document before.
type settingLine struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}

// The values of historyLine.What.
const (
	made      = "made"
	changed   = "changed"
	removed   = "removed"
	dropped   = "too large to be kept"
	mistaken  = "broken"
	unsettled = "no setting changed"
)

// describeHistory compares each document with the one before.
func describeHistory(h consul.History) []historyLine {
	all := make([]historyLine, len(h.Changes))
	var before config.Document // the previous one; without a name if there was none
	for i, c := range h.Changes {
		line := historyLine{Number: c.Number, At: c.At, By: c.By, Verb: c.Verb, Reason: c.Reason,
			Document: string(c.Document), Changes: []settingLine{}}
		var after config.Document
		switch {
		case c.Dropped:
			after = config.Document{Name: h.Topic, Err: errors.New(dropped)}
		case !c.Removed:
			after = config.ParseDocument(h.Topic, c.Document, 0)
		}
		switch {
		case c.Removed:
			line.What = removed
		case c.Dropped:
			line.What = dropped
		case after.Err != nil:
			line.What, line.Error = mistaken, after.Err.Error()
		case before.Name == "":
			line.What = made
		default:
			line.What = changed
		}
		for _, d := range difference(before, after) {
			line.Changes = append(line.Changes, settingLine{d.Key, d.Old, d.New})
		}
		if line.What == changed && len(line.Changes) == 0 {
			line.What = unsettled
		}
		all[i], before = line, after
	}
	return all
}

// difference returns the settings in which two documents of a topic differ. If before is
// missing or broken, it returns the settings of after that differ from the defaults. If
// after is missing or broken, it returns none.
func difference(before, after config.Document) []config.Change {
	switch {
	case after.Name == "" || after.Err != nil:
		return nil
	case before.Name != "" && before.Err == nil:
		return config.Diff(before.Topic, after.Topic)
	}
	changes := config.Diff(config.DefaultTopic(after.Name), after.Topic)
	for i := range changes {
		changes[i].Old = ""
	}
	return changes
}

func printHistory(out io.Writer, lines []historyLine) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tWHEN\tWHO\tHOW\tCHANGE")
	for _, l := range lines {
		when, who, how := "-", "another tool", "-"
		if l.By != "" {
			when, who, how = l.At.UTC().Format(time.RFC3339), l.By, l.Verb
		}
		text := l.text()
		if l.Reason != "" {
			text += " (" + l.Reason + ")"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", l.Number, when, cli.OneLine(who), cli.OneLine(how), cli.OneLine(text))
	}
	return w.Flush()
}

// text describes a change on one line.
func (l historyLine) text() string {
	if l.What == mistaken {
		return "! " + l.Error
	}
	var parts []string
	for _, c := range l.Changes {
		if c.Old == "" {
			parts = append(parts, c.Key+"="+c.New)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, orNone(c.New)))
	}
	if l.What == changed {
		return strings.Join(parts, ", ")
	}
	return strings.TrimSuffix(l.What+": "+strings.Join(parts, ", "), ": ")
}
