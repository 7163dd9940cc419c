package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

func auditCommand(s *settings) *cobra.Command {
	var topic string
	format := cli.NewListFlag()
	cmd := &cobra.Command{
		Use:   "audit [TOPIC]",
		Short: "Shows which commands changed tasks, and who ran them",
		Long: `Shows the last 1,000 commands that changed tasks, the newest first. They are parked
replay and purge, tasks run-now, move and cancel, intake refuse, data accept, and topic
pause and resume with --in-redis. The console's changes of documents are there, too. Redis holds them.
Times are by Redis's clock.

The author is --as, else the name of Consul's token, else the user. An entry is written
before the change, with the state "started", and completed after it. It stays "started"
if the process died.`,
		Example: `  scanner audit orders
  scanner audit -o json`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if topic != "" {
				if err := task.CheckTopic(topic); err != nil {
					return err
				}
			}
			return s.withStore(func(store *shard.Store) error {
				entries, err := bulk.Audit(cmd.Context(), store, topic)
				if err != nil {
					return err
				}
				return printAudit(cmd, format.Format, entries)
			})
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic (default all); the same as TOPIC")
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// auditLine is an entry as JSON.
type auditLine struct {
	At      string `json:"at"`
	AtMs    int64  `json:"at_ms"`
	EndedAt string `json:"ended_at,omitempty"`
	bulk.Entry
}

func newAuditLine(e bulk.Entry) auditLine {
	l := auditLine{At: duetime.Text(e.Began), AtMs: e.Began.UnixMilli(), Entry: e}
	if !e.Ended.IsZero() {
		l.EndedAt = duetime.Text(e.Ended)
	}
	return l
}

func printAudit(cmd *cobra.Command, format cli.Format, entries []bulk.Entry) error {
	all := func(yield func(bulk.Entry) bool) error {
		for _, e := range entries {
			if !yield(e) {
				break
			}
		}
		return nil
	}
	if format != cli.Table {
		return printList(cmd.OutOrStdout(), format, all, newAuditLine)
	}
	now := time.Now()
	const head = "AT\tBY\tCOMMAND\tTOPIC\tTASKS\tSTATE\tCHANGED\tSKIPPED\tFAILED"
	return printTable(cmd.OutOrStdout(), head, "nothing is recorded\n", all, func(e bulk.Entry) string {
		n := cmp.Or(e.Counts, &bulk.Counts{})
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d", cli.Relative(e.Began, now), cli.OneLine(e.By),
			cli.OneLine(e.Command), cli.OneLine(cmp.Or(e.Topic, "-")), cli.OneLine(cmp.Or(e.Filter, "-")), e.State,
			n.Changed, n.Skipped, n.Failed)
	})
}

// registerAs adds --as, and checks its length before the verb runs.
func registerAs(cmd *cobra.Command) {
	cmd.Flags().String(asFlag, "", "who makes the change, for scanner audit (default the name of Consul's token, "+
		"else the user behind sudo or SSH, else user@host)")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		as := flagOf(cmd, asFlag)
		if len(as) > topicconfig.MaxAuthor || !utf8.ValidString(as) || cmd.Flags().Changed(asFlag) &&
			strings.TrimSpace(as) == "" {
			return cli.UsageError(fmt.Sprintf("--%s: must be a text of 1 to %d bytes", asFlag, topicconfig.MaxAuthor))
		}
		return nil
	}
}

// audited carries out a verb's change between the two writes of its audit entry. e has the
// topic, the filter, and as the command the flags that say what is changed, if any.
func (s *settings) audited(cmd *cobra.Command, store *shard.Store, e bulk.Entry,
	do func() (bulk.Counts, error)) (bulk.Counts, error) {
	host, _ := os.Hostname() // on an error: "?"
	e.By, e.Host = s.author(cmd), cmp.Or(host, "?")
	e.Command = strings.TrimSpace(cmd.Parent().Name() + " " + cmd.Name() + " " + e.Command)
	return bulk.Audited(cmd.Context(), store, e, do)
}

// namedInAudit is how many IDs an audit entry names.
const namedInAudit = 10

// named says in an audit entry which tasks were named.
func named(ids ...string) string {
	var names []string
	for _, id := range ids[:min(len(ids), namedInAudit)] {
		names = append(names, fmt.Sprintf("%q", shard.ShortID(id)))
	}
	text := "ID " + strings.Join(names, ", ")
	if more := len(ids) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nameWithin limits the question for the name of Consul's token.
const nameWithin = 2 * time.Second

// author returns who runs the verb, as the history of a topic has it.
func (s *settings) author(cmd *cobra.Command) string {
	if as := flagOf(cmd, asFlag); as != "" {
		return as
	}
	cfg, err := s.connections()
	if err == nil && cfg.Consul.Addr != "" {
		ctx, cancel := context.WithTimeout(cmd.Context(), nameWithin)
		defer cancel()
		if docs, err := topicconfig.Open(cfg.Consul, nil); err == nil {
			if name, err := docs.Consul.TokenName(ctx); err == nil && name != "" {
				return name[:min(len(name), topicconfig.MaxAuthor)]
			}
		}
	}
	return topicconfig.Caller(os.Getenv)
}
