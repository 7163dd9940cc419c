package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
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
		parkedChange(s, "replay", "Makes parked tasks due now, with a fresh count of attempts", "replayed",
			func(cmd *cobra.Command, p operate.Parked, id string) (int, error) { return p.Replay(cmd.Context(), id) }),
		parkedPurge(s),
	)
	return cmd
}

// selection is which parked tasks a verb is about.
type selection struct {
	topic, id string
	all       bool
	format    cli.FormatFlag
}

func (sel *selection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&sel.topic, "topic", "", "the topic (required)")
	f.StringVar(&sel.id, "id", "", "this task alone")
	f.BoolVar(&sel.all, "all", false, "all parked tasks of the topic")
	f.VarP(&sel.format, "output", "o", "how to print")
}

func (sel *selection) check() error {
	if sel.topic == "" {
		return cli.UsageError("--topic is required")
	}
	return task.CheckTopic(sel.topic)
}

func parkedList(s *settings) *cobra.Command {
	sel := selection{format: cli.NewFormatFlag(cli.Table)}
	cmd := &cobra.Command{
		Use:   "ls --topic T",
		Short: "Lists parked tasks with their reasons",
		Args:  cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if err := sel.check(); err != nil {
				return err
			}
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			parked := operate.Parked{Topic: store.Topic(sel.topic)}
			list := listTable
			if sel.format.Format == cli.JSON {
				list = listJSON
			}
			return list(cmd, parked, sel.id)
		}),
	}
	sel.register(cmd)
	return cmd
}

// parkedTask is one line of `parked ls -o json`.
type parkedTask struct {
	Topic    string `json:"topic"`
	ID       string `json:"id"`
	DueMs    int64  `json:"due_ms"`
	Attempts int    `json:"attempts"`
	Bytes    int    `json:"payload_bytes"`
	Reason   string `json:"reason"`
	// unread: its record is damaged, or of a newer format, and Reason says so.
	unread bool
}

func newParkedTask(r shard.Record) parkedTask {
	if r.Due.IsZero() {
		return parkedTask{Topic: r.Topic, ID: r.ID, Reason: r.Reason, unread: true}
	}
	return parkedTask{Topic: r.Topic, ID: r.ID, DueMs: r.Due.UnixMilli(), Attempts: r.Attempt - 1, Bytes: len(r.Payload), Reason: r.Reason}
}

func listJSON(cmd *cobra.Command, parked operate.Parked, id string) error {
	return each(cmd, parked, id, func(p parkedTask) error {
		return cli.PrintJSON(cmd.OutOrStdout(), p, "")
	})
}

func listTable(cmd *cobra.Command, parked operate.Parked, id string) error {
	list := func(visit func(parkedTask) error) error { return each(cmd, parked, id, visit) }
	return printParked(cmd.OutOrStdout(), list, time.Now())
}

// printParked is the table for people, as seen from now, of the tasks that list
// visits.
func printParked(out io.Writer, list func(visit func(parkedTask) error) error, now time.Time) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	n := 0
	err := list(func(p parkedTask) error {
		if n == 0 {
			if _, err := io.WriteString(w, "ID\tDUE\tATTEMPTS\tBYTES\tREASON\n"); err != nil {
				return err
			}
		}
		n++
		due, attempts := "-", "-"
		if !p.unread {
			due, attempts = relative(time.UnixMilli(p.DueMs), now), fmt.Sprint(p.Attempts)
		}
		_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", cli.OneLine(shard.ShortID(p.ID)), due, attempts, p.Bytes, cli.OneLine(p.Reason))
		return err
	})
	if err == nil && n == 0 {
		_, err = io.WriteString(w, "nothing is parked\n")
	}
	return errors.Join(err, w.Flush()) // what was read is shown, also where a shard can't be
}

// each visits the parked tasks, or the one of that ID.
func each(cmd *cobra.Command, parked operate.Parked, id string, visit func(parkedTask) error) error {
	var failed error
	err := parked.Each(cmd.Context(), func(r shard.Record) bool {
		if id == "" || r.ID == id {
			failed = visit(newParkedTask(r))
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// parkedPurge is parkedChange that asks first, but not about the one task that is named.
func parkedPurge(s *settings) *cobra.Command {
	var confirm confirmation
	cmd := parkedChange(s, "purge", "Removes parked tasks for good; asks before it removes all", "purged",
		func(cmd *cobra.Command, p operate.Parked, id string) (int, error) {
			if id == "" && !confirm.yes {
				n, err := p.Count(cmd.Context())
				if err != nil {
					return 0, err
				}
				if err := confirm.ask(cmd, fmt.Sprintf("delete all that is parked in topic %s: %s", p.Topic.Name(), counted(n))); err != nil {
					return 0, err
				}
			}
			return p.Purge(cmd.Context(), id)
		})
	confirm.register(cmd)
	return cmd
}

func parkedChange(s *settings, name, short, done string, change changeParked) *cobra.Command {
	sel := selection{format: cli.NewFormatFlag(cli.Text)}
	cmd := &cobra.Command{
		Use:   name + " --topic T (--id ID | --all)",
		Short: short,
		Args:  cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if err := sel.check(); err != nil {
				return err
			}
			if (sel.id == "") == !sel.all {
				return cli.UsageError("give either --id or --all")
			}
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			bar := parkedBar{out: cmd.ErrOrStderr(), name: name}
			n, err := change(cmd, operate.Parked{Topic: store.Topic(sel.topic), Progress: bar.show}, sel.id)
			bar.finish()
			var left *operate.LeftError
			if err != nil && !errors.As(err, &left) {
				return err
			}
			return errors.Join(printChanged(cmd.OutOrStdout(), sel.format.Format, done, n, left), err)
		}),
	}
	sel.register(cmd)
	return cmd
}

// printChanged says how many tasks were changed, and as JSON also what was left.
func printChanged(out io.Writer, format cli.Format, done string, n int, left *operate.LeftError) error {
	if format != cli.JSON {
		_, err := fmt.Fprintf(out, "%s %d\n", done, n)
		return err
	}
	result := map[string]any{done: n}
	if left != nil && left.Tasks > 0 {
		result["unreadable"], result["unreadable_ids"] = left.Tasks, left.IDs
	}
	if left != nil && left.Shards != nil {
		result["unreadable_shards"] = left.Shards.Shards
	}
	return cli.PrintJSON(out, result, "")
}

// parkedBar shows how far a pass over parked tasks has come: a bar on a terminal, a line
// every five seconds elsewhere.
type parkedBar struct {
	out  io.Writer
	name string
	bar  *progressbar.ProgressBar
	said time.Time
}

func (b *parkedBar) show(visited, of int64) {
	if onTerminal(b.out) {
		if b.bar == nil {
			b.bar = progressbar.NewOptions64(of, progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(b.name),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("tasks"), progressbar.OptionClearOnFinish())
		}
		b.bar.ChangeMax64(max(of, 1))
		_ = b.bar.Set64(visited) // drawing is all it does
		return
	}
	if b.said.IsZero() {
		b.said = time.Now() // what ends soon needs no line
	}
	if time.Since(b.said) >= 5*time.Second {
		b.said = time.Now()
		_, _ = fmt.Fprintf(b.out, "%s: %d of about %d tasks\n", b.name, visited, of)
	}
}

func (b *parkedBar) finish() {
	if b.bar != nil {
		_ = b.bar.Finish() // drawing is all it does
	}
}

// changeParked is one of the operations on parked tasks.
type changeParked func(cmd *cobra.Command, p operate.Parked, id string) (int, error)
