package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func parkedCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "Lists, replays and purges tasks that could not be delivered",
		Args:  cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError("name a command: ls, replay or purge")
		},
	}
	cmd.AddCommand(
		parkedList(s),
		parkedReplay(s), parkedPurge(s),
	)
	return cmd
}

// selection selects the parked tasks of a verb.
type selection struct {
	topic, id            string
	all                  bool
	reason, before, than string
	format               cli.FormatFlag
	filter               operate.ParkedFilter // made of these flags by check
}

func (sel *selection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&sel.id, "id", "", "only this task")
	f.StringVar(&sel.reason, "reason", "", "only tasks whose reason contains this text, in upper or lower case")
	f.StringVar(&sel.before, "parked-before", "",
		"only tasks parked before this time: RFC 3339, Unix milliseconds, or relative to now as in -2h")
	f.StringVar(&sel.than, "older-than", "", "only tasks parked longer ago than this: 30m, 2d")
	f.VarP(&sel.format, "output", "o", "how to print")
}

// check validates the flags and makes the filter of them; ages count back from now.
func (sel *selection) check(now time.Time) (err error) {
	if sel.topic != "" {
		if err := task.CheckTopic(sel.topic); err != nil {
			return err
		}
	}
	if sel.before != "" && sel.than != "" {
		return cli.UsageError("give either --parked-before or --older-than")
	}
	sel.filter.Reason = sel.reason
	if sel.than != "" {
		age, ok := parseSpan(sel.than)
		if !ok || age < 0 {
			return cli.UsageError(fmt.Sprintf("--older-than %q: want a duration as in 30m, 2d", sel.than))
		}
		sel.filter.Before = now.Add(-age)
		return nil
	}
	sel.filter.Before, err = parseMoment("--parked-before", sel.before, now)
	return err
}

// filtered reports whether the flags select only some of the parked tasks.
func (sel *selection) filtered() bool { return sel.filter != operate.ParkedFilter{} }

// parked returns the selected tasks of a topic.
func (sel *selection) parked(store *shard.Store, topic string) operate.Parked {
	return operate.Parked{Topic: store.Topic(topic), Filter: sel.filter}
}

func parkedList(s *settings) *cobra.Command {
	sel := selection{format: cli.NewListFlag()}
	cmd := &cobra.Command{
		Use:   "ls [TOPIC]",
		Short: "Lists parked tasks with their reasons",
		Long: `Lists the parked tasks of a topic, or of all topics. It says when each was parked, when
it was due first, when its last attempt was due, and the reason. The time of parking is
unknown for a task whose record is damaged. The table prints an ID with blanks, quotes
or unprintable characters as a JSON string.

-o json prints one array, -o ndjson one object per line.`,
		Example: `  scanner parked ls
  scanner parked ls orders --reason NO_ROUTE --older-than 1d`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if err := sel.check(now); err != nil {
				return err
			}
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			list := func(visit func(parkedTask) error) error { return sel.each(cmd, store, visit) }
			if sel.format.Format == cli.Table {
				return printParked(cmd.OutOrStdout(), list, sel.none(), now)
			}
			return printList(cmd.OutOrStdout(), sel.format.Format, list)
		}),
	}
	cmd.Flags().StringVar(&sel.topic, "topic", "", "only this topic (default all); the same as TOPIC")
	sel.register(cmd)
	return cmd
}

// parkedTask is one element of `parked ls -o json`. The times are RFC 3339, and Unix
// milliseconds under the name with _ms.
type parkedTask struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	Due   string `json:"due,omitempty"`
	DueMs int64  `json:"due_ms"`
	// FirstDue is absent if the record can't be read. Due is the time of the last retry.
	FirstDue   string `json:"first_due,omitempty"`
	FirstDueMs int64  `json:"first_due_ms,omitempty"`
	// ParkedAt is absent if the record doesn't hold it.
	ParkedAt   string `json:"parked_at,omitempty"`
	ParkedAtMs int64  `json:"parked_at_ms,omitempty"`
	Attempts   int    `json:"attempts"`
	Bytes      int    `json:"payload_bytes"`
	Reason     string `json:"reason"`

	due, firstDue, parkedAt time.Time // zero: the record can't be read, and Reason says so
}

func newParkedTask(r shard.Record) parkedTask {
	p := parkedTask{
		Topic: r.Topic, ID: r.ID, Attempts: max(r.Attempt-1, 0), Bytes: r.PayloadBytes, Reason: r.Reason,
		due: r.Due, firstDue: r.FirstDue, parkedAt: r.ReasonAt,
	}
	p.Due, p.DueMs = moment(r.Due)
	p.FirstDue, p.FirstDueMs = moment(r.FirstDue)
	p.ParkedAt, p.ParkedAtMs = moment(r.ReasonAt)
	return p
}

// none returns the text that stands in for an empty table.
func (sel *selection) none() string {
	if sel.filtered() || sel.id != "" {
		return "none match\n"
	}
	return "nothing is parked\n"
}

// printParked prints a table of the tasks that list visits, with times relative to now;
// without tasks it prints none.
func printParked(out io.Writer, list func(visit func(parkedTask) error) error, none string, now time.Time) error {
	t := longTable{out: out, head: "TOPIC\tID\tPARKED AT\tFIRST DUE\tDUE\tATTEMPTS\tBYTES\tREASON"}
	return t.print(none, func() error {
		return list(func(p parkedTask) error {
			attempts := "-"
			if !p.due.IsZero() {
				attempts = fmt.Sprint(p.Attempts)
			}
			return t.row("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", p.Topic, cli.ID(shard.ShortID(p.ID)),
				cli.Relative(p.parkedAt, now), cli.Relative(p.firstDue, now), cli.Relative(p.due, now),
				attempts, p.Bytes, cli.OneLine(p.Reason))
		})
	})
}

// each visits the selected tasks of the topic, or of all known topics. If a part of one
// topic can't be read, it visits the other topics and then returns the error.
func (sel *selection) each(cmd *cobra.Command, store *shard.Store, visit func(parkedTask) error) error {
	if sel.topic != "" {
		return sel.eachOf(cmd, store, sel.topic, visit)
	}
	topics, err := store.Topics(cmd.Context())
	if err != nil {
		return err
	}
	slices.Sort(topics)
	var unread []error
	for _, topic := range topics {
		err := sel.eachOf(cmd, store, topic, visit)
		switch {
		case errors.Is(err, task.ErrUnknownTopic): // removed, perhaps only in part
		case shard.Definite(err) && !shard.Denied(err):
			unread = append(unread, err)
		case err != nil:
			return err
		}
	}
	return errors.Join(unread...)
}

func (sel *selection) eachOf(cmd *cobra.Command, store *shard.Store, topic string, visit func(parkedTask) error) error {
	var failed error
	err := sel.parked(store, topic).Each(cmd.Context(), func(r shard.Record) bool {
		if sel.id == "" || r.ID == sel.id {
			failed = visit(newParkedTask(r))
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}
