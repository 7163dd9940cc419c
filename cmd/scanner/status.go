package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

func asErrors(err error) (config.Errors, bool) {
	var all config.Errors
	ok := errors.As(err, &all)
	return all, ok
}

func statusCommand(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	var topic string
	cmd := &cobra.Command{
		Use:   "status --config config.yaml [--topic T]",
		Short: "Shows topics, their shards, and the members of the fleet",
		Args:  cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			status, err := operate.ReadStatus(cmd.Context(), store, topic)
			if err != nil {
				return err
			}
			if format.Format == cli.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), status, "  ")
			}
			return printStatus(cmd.OutOrStdout(), status, time.Now())
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", "this topic alone")
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

func printStatus(out io.Writer, s operate.Status, now time.Time) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	for _, t := range s.Topics {
		printTopic(w, t, now)
	}
	if len(s.Topics) == 0 {
		fmt.Fprintln(w, "no topics: no scanner has served one under this Redis prefix yet")
	}
	printFleet(w, s.Fleet, now)
	return w.Flush()
}

func printTopic(w io.Writer, t operate.TopicStatus, now time.Time) {
	phase := string(t.Phase)
	if t.Phase == shard.Migrating {
		phase = migrating(t, now)
	}
	if phase == "" {
		phase = "not known"
	}
	fmt.Fprintf(w, "topic %s: M %d, epoch %d, %s\n", t.Topic, t.Shards, t.Epoch, phase)
	for _, n := range t.Notes {
		fmt.Fprintf(w, "  ! %s\n", cli.OneLine(n))
	}
	fmt.Fprintln(w, "  SHARD\tPENDING\tBACKLOG\tLEASED\tPARKED\tOLDEST DUE")
	for _, v := range t.PerShard {
		row(w, fmt.Sprint(v.Shard), v, now)
	}
	row(w, "all", shard.Stats{Pending: t.Pending, Backlog: t.Backlog, Leased: t.Leased, Parked: t.Parked, Oldest: t.Oldest}, now)
	fmt.Fprintln(w)
}

// migrating describes a change under way in one line.
func migrating(t operate.TopicStatus, now time.Time) string {
	c := t.Change
	text := fmt.Sprintf("migrating from %d: %d of %d shards clean, %d tasks moved, about %d left, %.0f/s",
		t.Previous, c.Clean, t.Attended, c.Moved, c.Misplaced, c.Rate)
	if !c.End.IsZero() {
		text += ", end " + relative(c.End, now)
	}
	return text
}

func row(w io.Writer, name string, v shard.Stats, now time.Time) {
	oldest := "-"
	if !v.Oldest.IsZero() {
		oldest = relative(v.Oldest, now)
	}
	fmt.Fprintf(w, "  %s\t%d\t%d\t%d\t%d\t%s\n", name, v.Pending, v.Backlog, v.Leased, v.Parked, oldest)
}

// timeFormat is RFC 3339 in UTC, to the millisecond.
const timeFormat = "2006-01-02T15:04:05.000Z"

// relative says when something is due, as seen from now.
func relative(t, now time.Time) string {
	at := t.UTC().Format(timeFormat)
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", at, -d)
	}
	return fmt.Sprintf("%s (in %s)", at, d)
}

// started is when a member began; one that has not said so yet has no such time.
func started(m balance.Member) string {
	if m.Started.IsZero() {
		return "-"
	}
	return m.Started.Format(time.RFC3339)
}

func printFleet(w io.Writer, fleet []balance.Member, now time.Time) {
	fmt.Fprintln(w, "fleet:")
	fmt.Fprintln(w, "  INSTANCE\tSTATE\tHEARTBEAT\tSTARTED\tVERSION\tADMIN\tCONFIG")
	for _, m := range fleet {
		state := "dead"
		if m.Alive {
			state = "live"
		}
		configuration := fmt.Sprintf("index %d", m.Applied)
		if len(m.Errors) > 0 {
			configuration += fmt.Sprintf(", %d errors", len(m.Errors))
		}
		fmt.Fprintf(w, "  %s\t%s\t%s ago\t%s\t%s\t%s\t%s\n", m.Instance, state,
			max(now.Sub(m.Heartbeat), 0).Round(time.Second), started(m), m.Version, m.Admin, configuration)
	}
	if len(fleet) == 0 {
		fmt.Fprintln(w, "  "+strings.Repeat("-", 3)+" no scanner runs")
	}
}
