package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
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
	topic, id            string
	all                  bool
	reason, before, than string
	format               cli.FormatFlag
	filter               operate.ParkedFilter // of the flags above, by check
}

func (sel *selection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&sel.id, "id", "", "this task alone")
	f.StringVar(&sel.reason, "reason", "", "only tasks with this text in the reason why they were parked, in capitals or not")
	f.StringVar(&sel.before, "parked-before", "", "only tasks parked before this time: RFC 3339, Unix milliseconds, or from now as in -2h")
	f.StringVar(&sel.than, "older-than", "", "only tasks parked longer ago than this: 30m, 2d")
	f.VarP(&sel.format, "output", "o", "how to print")
}

// check refuses what no verb could work with, and reads the flags, as seen from now.
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

// filtered reports whether only some of the parked tasks are meant.
func (sel *selection) filtered() bool { return sel.filter != operate.ParkedFilter{} }

// parked are the tasks of a topic that are selected.
func (sel *selection) parked(store *shard.Store, topic string) operate.Parked {
	return operate.Parked{Topic: store.Topic(topic), Filter: sel.filter}
}

func parkedList(s *settings) *cobra.Command {
	sel := selection{format: cli.NewListFlag()}
	cmd := &cobra.Command{
		Use:   "ls [TOPIC]",
		Short: "Lists parked tasks with their reasons",
		Long: `Lists the parked tasks of a topic, or of all topics: since when each is parked, and why.
Of one whose record is damaged nobody knows since when. IDs that aren't plain are JSON
strings in the table.

With -o json it prints an array, with -o ndjson an object a line.`,
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
	cmd.Flags().StringVar(&sel.topic, "topic", "", "this topic alone (default all); the same as TOPIC")
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
	// ParkedAt is absent where the record doesn't say.
	ParkedAt   string `json:"parked_at,omitempty"`
	ParkedAtMs int64  `json:"parked_at_ms,omitempty"`
	Attempts   int    `json:"attempts"`
	Bytes      int    `json:"payload_bytes"`
	Reason     string `json:"reason"`

	due, parkedAt time.Time // zero: the record is damaged, or of a newer format, and Reason says so
}

func newParkedTask(r shard.Record) parkedTask {
	p := parkedTask{Topic: r.Topic, ID: r.ID, Attempts: max(r.Attempt-1, 0), Bytes: r.PayloadBytes, Reason: r.Reason, due: r.Due, parkedAt: r.ReasonAt}
	p.Due, p.DueMs = moment(r.Due)
	p.ParkedAt, p.ParkedAtMs = moment(r.ReasonAt)
	return p
}

// none is what the table says where no task is listed.
func (sel *selection) none() string {
	if sel.filtered() || sel.id != "" {
		return "none match\n"
	}
	return "nothing is parked\n"
}

// printParked is the table for people, as seen from now, of the tasks that list
// visits; none is what it says if there are none.
func printParked(out io.Writer, list func(visit func(parkedTask) error) error, none string, now time.Time) error {
	t := longTable{out: out, head: "TOPIC\tID\tPARKED AT\tDUE\tATTEMPTS\tBYTES\tREASON"}
	return t.print(none, func() error {
		return list(func(p parkedTask) error {
			attempts := "-"
			if !p.due.IsZero() {
				attempts = fmt.Sprint(p.Attempts)
			}
			return t.row("%s\t%s\t%s\t%s\t%s\t%d\t%s", p.Topic, cli.ID(shard.ShortID(p.ID)), relativeOr(p.parkedAt, now), relativeOr(p.due, now),
				attempts, p.Bytes, cli.OneLine(p.Reason))
		})
	})
}

// each visits the parked tasks of the topic, or of all topics that are known. What can't
// be read of one hides no other.
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
		case errors.Is(err, task.ErrUnknownTopic): // removed meanwhile, or its removal died
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

// parkedPurge is parkedChange that asks first, but not about the one task that is named.
func parkedPurge(s *settings) *cobra.Command {
	var confirm cli.Confirmation
	cmd := parkedChange(s, "purge", "Removes parked tasks for good; asks before it removes more than one", "purged",
		func(cmd *cobra.Command, p operate.Parked, id string) (int, error) {
			if id == "" && !confirm.Yes {
				n, err := p.Count(cmd.Context())
				if err != nil {
					return 0, err
				}
				if err := confirm.Ask(cmd, fmt.Sprintf("delete all that is parked in topic %s%s: %s", p.Topic.Name(), narrowed(p.Filter), cli.Counted(n))); err != nil {
					return 0, err
				}
			}
			return p.Purge(cmd.Context(), id)
		})
	confirm.Register(cmd)
	return cmd
}

// narrowed says for a question which of the parked tasks would go, if not all.
func narrowed(f operate.ParkedFilter) (text string) {
	if f.Reason != "" {
		text += fmt.Sprintf(" with %q in its reason", f.Reason)
	}
	if !f.Before.IsZero() {
		text += " since before " + f.Before.UTC().Format(timeFormat)
	}
	return text
}

func parkedChange(s *settings, name, short, done string, change changeParked) *cobra.Command {
	sel := selection{format: cli.NewFormatFlag(cli.Text)}
	cmd := &cobra.Command{
		Use:   name + " TOPIC (--id ID | --all | --reason TEXT | --older-than D)",
		Short: short,
		Long: short + `.

With --all, --reason, --parked-before or --older-than it is one pass: what is parked in a
shard when the pass comes to it is visited once, though it may be parked again at once.
Tasks of which nobody knows when they were parked have no age. Exit code 3: no such task
or topic.`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if err := sel.checkChange(time.Now()); err != nil {
				return err
			}
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			bar := parkedBar{out: cmd.ErrOrStderr(), name: name}
			parked := sel.parked(store, sel.topic)
			parked.Progress = bar.show
			n, err := change(cmd, parked, sel.id)
			bar.finish()
			var left *operate.LeftError
			if err != nil && !errors.As(err, &left) {
				return err
			}
			return errors.Join(printChanged(cmd.OutOrStdout(), sel.format.Format, done, n, left), err)
		}),
	}
	cmd.Flags().StringVar(&sel.topic, "topic", "", "the topic; the same as TOPIC")
	cmd.Flags().BoolVar(&sel.all, "all", false, "all parked tasks of the topic, or all that the other flags leave")
	sel.register(cmd)
	return cmd
}

// checkChange is check for a verb that changes tasks: which ones has to be said.
func (sel *selection) checkChange(now time.Time) error {
	if sel.topic == "" {
		return cli.UsageError("name a topic")
	}
	if err := sel.check(now); err != nil {
		return err
	}
	switch some := sel.all || sel.filtered(); {
	case sel.id != "" && some:
		return cli.UsageError("--id stands alone: it names one task")
	case sel.id == "" && !some:
		return cli.UsageError("give either --id or --all, or --reason, --parked-before or --older-than")
	}
	return nil
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
	if cli.OnTerminal(b.out) {
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
