package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func parkedCommand(s *settings) *cobra.Command {
	return cli.Group("parked", "Lists, replays and purges tasks that could not be delivered",
		parkedList(s), parkedReplay(s), parkedPurge(s))
}

// selection selects the parked tasks of a verb.
type selection struct {
	topic, id            string
	all, none            bool
	reason, before, than string
	format               cli.FormatFlag
	filter               admin.ParkedFilter // made of these flags by check
}

func (sel *selection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&sel.id, "id", "", "only this task")
	f.StringVar(&sel.reason, "reason", "", "only tasks whose reason contains this text, in upper or lower case")
	f.BoolVar(&sel.none, "no-reason", false, "only tasks without a reason")
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
	if sel.none && sel.reason != "" {
		return cli.UsageError("give either --reason or --no-reason")
	}
	sel.filter.Reason, sel.filter.NoReason = sel.reason, sel.none
	if sel.than != "" {
		age, err := duetime.Span(sel.than)
		if err == nil && age < 0 {
			err = errors.New("want a duration of 0 or more")
		}
		if err != nil {
			return cli.UsageError(fmt.Sprintf("--older-than %q: %v", sel.than, err))
		}
		sel.filter.Before = now.Add(-age)
		return nil
	}
	sel.filter.Before, err = cli.ParseMoment("--parked-before", sel.before, now)
	return err
}

// filtered reports whether the flags select only some of the parked tasks.
func (sel *selection) filtered() bool { return sel.filter != admin.ParkedFilter{} }

func parkedList(s *settings) *cobra.Command {
	sel := selection{format: cli.NewListFlag()}
	var payloads payloadFlag
	cmd := &cobra.Command{
		Use:   "ls [TOPIC]",
		Short: "Lists parked tasks with their reasons",
		Long: `Lists the parked tasks of a topic, or of all topics. It says when each was parked, when
it was due first, when its last attempt was due, and the reason. The time of parking is
unknown for a task whose record is damaged. The table prints an ID with blanks, quotes
or unprintable characters as a JSON string.

-o json prints one array, -o ndjson one object per line. There a task that came through
the topic's intake has "amqp": routing key, properties, and headers with their types.`,
		Example: `  scanner parked ls
  scanner parked ls orders --reason NO_ROUTE --older-than 1d
  scanner parked ls orders -o ndjson --payload >parked.ndjson`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if err := errors.Join(sel.check(now), payloads.check(sel.format.Format)); err != nil {
				return err
			}
			none := "nothing is parked\n"
			if sel.filtered() {
				none = "none match\n"
			}
			sel.filter.ID = sel.id
			return s.withStore(func(store *shard.Store) error {
				all := func(yield func(shard.Record) bool) error {
					return admin.EachParked(cmd.Context(), store, sel.topic, sel.filter, yield)
				}
				if sel.format.Format == cli.Table {
					return printParked(cmd.OutOrStdout(), all, none, now)
				}
				if payloads {
					return printList(cmd.OutOrStdout(), sel.format.Format, withPayloads(cmd.Context(), store, all,
						func(r shard.Record) (string, string) { return r.Topic, r.ID }), newParkedPayload)
				}
				return printList(cmd.OutOrStdout(), sel.format.Format, all, admin.NewParkedLine)
			})
		}),
	}
	cmd.Flags().StringVar(&sel.topic, "topic", "", "only this topic (default all); the same as TOPIC")
	sel.register(cmd)
	payloads.register(cmd)
	return cmd
}

// parkedPayload is a line with the payload.
type parkedPayload struct {
	admin.ParkedLine
	payload
}

func newParkedPayload(p withPayload[shard.Record]) parkedPayload {
	return parkedPayload{admin.NewParkedLine(p.listed), p.payload}
}

// printParked prints a table of the tasks, with times relative to now, or the text in none.
func printParked(out io.Writer, all each[shard.Record], none string, now time.Time) error {
	const head = "TOPIC\tID\tPARKED AT\tFIRST DUE\tDUE\tATTEMPTS\tBYTES\tREASON"
	return printTable(out, head, none, all, func(p shard.Record) string {
		attempts := "-"
		if !p.Due.IsZero() {
			attempts = fmt.Sprint(max(p.Attempt-1, 0))
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", p.Topic, cli.ID(shard.ShortID(p.ID)),
			cli.Relative(p.ReasonAt, now), cli.Relative(p.FirstDue, now), cli.Relative(p.Due, now),
			attempts, p.PayloadBytes, cli.OneLine(p.Reason))
	})
}
