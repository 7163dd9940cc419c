package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

func topicCommand(s *settings) *cobra.Command {
	return cli.Group("topic", "Lists, shows and changes the topics' documents in Consul",
		topicList(s), topicGet(s), topicSet(s), topicCreate(s), topicApply(s), topicPause(s), topicResume(s),
		topicRemove(s), topicHistory(s), topicUndo(s))
}

// openDocuments opens the topics' documents in the configured Consul.
func openDocuments(cfg *config.Config) (topicconfig.Documents, error) {
	return topicconfig.Open(cfg.Consul, slog.New(slog.DiscardHandler))
}

// topicWork holds the documents in Consul and the scanners that apply them, for the verbs of
// topics.
type topicWork struct {
	docs     topicconfig.Documents
	fleet    admin.Fleet
	settings *config.Config
}

// withTopics calls a verb's work. It fails with a topicconfig.FileError if Consul isn't
// configured.
func withTopics(s *settings, work func(w topicWork) error) error {
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	if cfg.Consul.Addr == "" {
		return topicconfig.FileError(s.path)
	}
	docs, err := openDocuments(cfg)
	if err != nil {
		return err
	}
	store, closing, err := openStore(cfg, 0, nil)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	return work(topicWork{docs, admin.Fleet{Store: store}, cfg})
}

// oneTopic requires a topic's name as the first argument; more checks the others.
func oneTopic(more cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.UsageError("name a topic")
		}
		if err := task.CheckTopic(args[0]); err != nil {
			return cli.UsageError(err.Error())
		}
		return more(cmd, args[1:])
	}
}

func topicList(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	cmd := &cobra.Command{
		Use: "ls", Short: "Lists the topics that have a document", Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return withTopics(s, func(w topicWork) error {
				docs, err := w.docs.List(cmd.Context())
				if err != nil {
					return err
				}
				if format.Format == cli.JSON {
					return cli.PrintJSON(cmd.OutOrStdout(), topicconfig.NewTopicLines(docs), "  ")
				}
				return printTopics(cmd.OutOrStdout(), docs)
			})
		}),
	}
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

func printTopics(out io.Writer, docs []config.Document) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tSHARDS\tEXCHANGE\tROUTING KEY\tPAUSED\tINDEX")
	for _, d := range docs {
		if d.Err != nil {
			fmt.Fprintf(w, "%s\t! %s\n", d.Name, cli.OneLine(d.Err.Error()))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\n", d.Name, d.Topic.Shards, d.Topic.Exchange, d.Topic.RoutingKey,
			pauseText(d.Topic), d.Index)
	}
	return w.Flush()
}

// pauseText returns whether a document pauses its topic, or until when.
func pauseText(t config.Topic) string {
	if t.Paused && t.PausedUntil != "" {
		return "until " + t.PausedUntil
	}
	return fmt.Sprint(t.Paused)
}

func topicGet(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Text)
	var effective bool
	cmd := &cobra.Command{
		Use:   "get TOPIC [--effective] [-o text|json]",
		Short: "Prints a topic's document as it is stored, or with its defaults",
		Long: `Prints a topic's document as it is stored. --effective prints every setting, with its
default if the document doesn't set it; a document with mistakes is then an error.

-o json prints one object. It has the settings of the document (all settings with
--effective), the document as it is stored, and its error if it has mistakes.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withTopics(s, func(w topicWork) error {
				doc, err := w.docs.Find(cmd.Context(), args[0])
				if err == nil && effective {
					err = doc.Err
				}
				if err != nil {
					return err
				}
				return printDocument(cmd.OutOrStdout(), doc, effective, format.Format)
			})
		}),
	}
	cmd.Flags().BoolVar(&effective, "effective", false,
		"print every setting, with its default if the document doesn't set it")
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// printDocument prints a document as it is stored, or if effective with every setting.
func printDocument(out io.Writer, doc config.Document, effective bool, format cli.Format) error {
	raw := doc.Raw
	if effective {
		raw = config.Complete(doc.Topic)
	}
	if format != cli.JSON {
		_, err := fmt.Fprintf(out, "%s\n", bytes.TrimSuffix(raw, []byte("\n")))
		return err
	}
	return cli.PrintJSON(out, topicconfig.NewDocumentLine(doc, raw), "  ")
}

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
			return withTopics(s, func(w topicWork) error {
				h, _, err := w.docs.History(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if format.Format == cli.JSON {
					return cli.PrintJSON(cmd.OutOrStdout(), topicconfig.NewHistoryLines(h), "  ")
				}
				return printHistory(cmd.OutOrStdout(), topicconfig.NewHistoryLines(h))
			})
		}),
	}
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

func printHistory(out io.Writer, lines []topicconfig.HistoryLine) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tWHEN\tWHO\tHOW\tCHANGE")
	for _, l := range lines {
		when, who, how := "-", "another tool", "-"
		if l.By != "" {
			when, who, how = l.At.UTC().Format(time.RFC3339), l.By, l.Verb
		}
		text := l.Text()
		if l.Reason != "" {
			text += " (" + l.Reason + ")"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", l.Number, when, cli.OneLine(who), cli.OneLine(how), cli.OneLine(text))
	}
	return w.Flush()
}
