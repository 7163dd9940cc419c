package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// tasksVerb is a verb that changes stored tasks.
type tasksVerb struct {
	how     changeVerb
	example string   // its flags
	states  []string // that --state takes

	topic      string
	all        bool
	filter     tasksFilter
	in, at, by string
	resume     string
	change     bulk.Change // made of these flags by check
	selected   bulk.Filter // the same
	total      int64       // how many tasks the question counted
}

func tasksRunNow(s *settings) *cobra.Command {
	v := &tasksVerb{
		how: changeVerb{name: string(bulk.RunNow), done: "made due",
			short: "Makes waiting tasks due now, for a retry at once; asks before it changes more than the named ones",
			long: `A task that waits for a retry keeps its attempts, its message and its first due time.
Tasks that are due already are skipped, and so are parked ones: see parked replay.
One run of a recurring task comes now instead of at its time; the others stay.`,
			confirm: cli.Confirmation{Deed: cli.RunsNow()},
		},
		example: `  scanner tasks run-now orders o-1 o-2
  scanner tasks run-now orders --state retrying --dry-run
  scanner tasks run-now orders --state retrying --rate 200 --yes`,
		states: []string{string(task.Waiting), string(admin.Retrying)},
	}
	return v.command(s)
}

func tasksMove(s *settings) *cobra.Command {
	v := &tasksVerb{
		how: changeVerb{name: string(bulk.Move), done: "moved",
			short: "Gives waiting tasks another due time; asks before it changes more than the named ones",
			long: `--in and --at are the new due time. --by adds a duration to the next attempt of each
task; a result in the past means now. Attempts, message and the first due time of a
retry stay. Parked tasks are skipped: see parked replay. It moves one run of a
recurring task; the others stay.

An interrupted command prints the flag --resume for the next one, which moves no task
twice.`,
			confirm: cli.Confirmation{Deed: cli.Moves()},
		},
		example: `  scanner tasks move orders o-1 --at 2026-12-01T10:00:00Z
  scanner tasks move orders --due-before 1h --by 2h --dry-run
  scanner tasks move orders --id-prefix customer-17: --in 1d --yes`,
		states: []string{string(task.Waiting), string(admin.Retrying)},
	}
	cmd := v.command(s)
	f := cmd.Flags()
	f.StringVar(&v.in, "in", "", "due this much from now: 30m, 2d")
	f.StringVar(&v.at, "at", "", "due at this time: RFC 3339 or Unix milliseconds")
	f.StringVar(&v.by, "by", "", "later by this, or earlier: 30m, -2d")
	f.StringVar(&v.resume, "resume", "", "value that an interrupted move printed")
	return cmd
}

func tasksCancel(s *settings) *cobra.Command {
	v := &tasksVerb{
		how: changeVerb{name: string(bulk.Cancel), done: "cancelled",
			short: "Removes stored tasks for good; asks before it removes more than the named ones",
			long: `It removes tasks in every state, parked ones too. A message that is on its way to the
broker, or in a queue, may still arrive. A task that is stored again while the command
runs may be removed as well. A recurring task ends with all its runs.`,
			confirm: cli.Confirmation{Deed: cli.Cancels()},
		},
		example: `  scanner tasks cancel orders o-1
  scanner tasks cancel orders --id-prefix customer-17: --dry-run`,
		states: listedStates(),
	}
	return v.command(s)
}

func (v *tasksVerb) command(s *settings) *cobra.Command {
	v.how.format = cli.NewFormatFlag(cli.Text)
	cmd := &cobra.Command{
		Use:   v.how.name + " TOPIC (ID... | --all | --state S | --due-before T | --due-after T | --id-prefix P | --group G)",
		Short: v.how.short,
		Long: v.how.short + ".\n\n" + v.how.long + `

The flags of tasks ls select the tasks. Each task is changed once at most. A
task that is delivered or changed in the meantime is skipped. --limit ends the command
after N tasks, and --rate changes at most N tasks a second. Ctrl-C and a lost connection
end it too: what was ` + v.how.done + ` stays so, and the same command goes on with the rest.

It asks on a terminal; elsewhere it needs --yes, except for named tasks. Exit code 3: no
such task or topic.`,
		Example: v.example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			v.selected.IDs = args[1:]
			return cli.TopicArgument(cmd, args[:1])
		},
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return v.do(cmd, s) }),
	}
	f := cmd.Flags()
	f.StringVar(&v.topic, "topic", "", "the topic; the same as TOPIC")
	f.BoolVar(&v.all, "all", false, "all tasks of the topic")
	v.filter.register(cmd, v.states...)
	v.how.registerMany(cmd, "change")
	f.VarP(&v.how.format, "output", "o", "how to print")
	v.how.confirm.Register(cmd)
	registerAs(cmd)
	return cmd
}

func (v *tasksVerb) do(cmd *cobra.Command, s *settings) error {
	if err := v.check(cmd, time.Now()); err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error {
		v.change.Topic = store.Topic(v.topic)
		return v.how.carryOut(cmd, s, store, v, v.entry(), len(v.selected.IDs) > 0)
	})
}

// check validates the command line, and makes the change and the filter of it.
func (v *tasksVerb) check(cmd *cobra.Command, now time.Time) error {
	tasks, err := v.filter.tasks(now, v.states...)
	if err = cmp.Or(v.how.check(cmd, v.topic), err); err != nil {
		return err
	}
	f := &v.selected
	f.State, f.Prefix, f.Group, f.DueAfter, f.DueBefore = tasks.State, tasks.Prefix, tasks.Group, tasks.DueAfter,
		tasks.DueBefore
	filtered := bulk.Filter{State: f.State, Prefix: f.Prefix, Group: f.Group, DueAfter: f.DueAfter, DueBefore: f.DueBefore}
	switch some := v.all || !filtered.All(); {
	case len(f.IDs) > 0 && some:
		return cli.UsageError("IDs stand alone: they name the tasks")
	case len(f.IDs) == 0 && !some:
		return cli.UsageError("give IDs or --all, or --state, --due-before, --due-after, --id-prefix or --group")
	}
	v.change.Verb, v.change.Limit, v.change.Rate = bulk.Verb(v.how.name), v.how.limit, v.how.rate
	return v.checkWhen(now)
}

// checkWhen makes the new due time of the flags of move.
func (v *tasksVerb) checkWhen(now time.Time) (err error) {
	v.change.Op = shard.NewOp()
	if v.change.Verb != bulk.Move {
		return nil
	}
	if v.resume != "" {
		if v.change.Op, err = bulk.ReadOp(v.resume); err != nil {
			return cli.UsageError(fmt.Sprintf("--resume %q: %v", v.resume, err))
		}
	}
	given := map[string]string{"in": v.in, "at": v.at, "by": v.by}
	for name, text := range given {
		if text == "" {
			delete(given, name)
		}
	}
	if len(given) != 1 {
		return cli.UsageError("give one of --in, --at and --by")
	}
	for name, text := range given {
		if name == "by" {
			switch v.change.By, err = duetime.Span(text); {
			case err == nil && v.change.By == 0:
				err = errors.New("moves nothing")
			case err == nil && v.change.By > 0:
				err = task.In(v.change.By).Check()
			}
		} else if v.change.When, err = duetime.When(name, text); err == nil {
			err = task.CheckWhen(v.change.When, now)
		}
		if err != nil {
			return cli.UsageError(fmt.Sprintf("--%s %q: %v", name, text, err))
		}
	}
	return nil
}

func (v *tasksVerb) count(ctx context.Context) (counted, error) {
	n, err := bulk.Count(ctx, v.change, v.selected)
	v.total = n.Changed
	meant := fmt.Sprintf("%s in topic %s%s", cli.Counted(n.Changed), v.topic, v.selected)
	if v.selected.All() {
		meant = fmt.Sprintf("all that is in topic %s: %s", v.topic, cli.Counted(n.Changed))
	}
	return counted{n.Changed, meant, fmt.Sprintf("; %d skipped", n.Skipped), map[string]any{
		"matched": n.Matched, "would_change": n.Changed, "skipped": n.Skipped, "failed": n.Failed}}, err
}

func (v *tasksVerb) run(ctx context.Context, bar *cli.Progress) (bulk.Counts, error) {
	return bulk.Run(ctx, v.change, v.selected, func(n bulk.Counts) {
		bar.Show(n.Changed, max(v.total, n.Changed), func() string {
			return fmt.Sprintf("%s: %d of %d tasks so far, %d skipped", v.how.name, n.Changed, n.Matched, n.Skipped)
		})
	})
}

// entry says in an audit entry what is changed.
func (v *tasksVerb) entry() bulk.Entry {
	e := bulk.Entry{Topic: v.topic, Filter: cmp.Or(strings.TrimSpace(v.selected.String()), "all")}
	if len(v.selected.IDs) > 0 {
		e.Filter = named(v.selected.IDs...)
	}
	for _, flag := range [][2]string{{"--in", v.in}, {"--at", v.at}, {"--by", v.by}} {
		if flag[1] != "" {
			e.Command = flag[0] + " " + flag[1]
		}
	}
	if n := v.change.Limit; n > 0 {
		e.Filter += fmt.Sprintf(", at most %d", n)
	}
	return e
}

func (v *tasksVerb) print(out io.Writer, n bulk.Counts, err error) error {
	if err != nil && v.change.Verb == bulk.Move && !errors.Is(err, task.ErrNotFound) {
		err = fmt.Errorf("%w; go on with --resume %s", err, bulk.OpText(v.change.Op))
	}
	if v.how.format.Format == cli.JSON {
		return errors.Join(cli.PrintJSON(out, n, ""), err)
	}
	_, failed := fmt.Fprintf(out, "%s %d; %d skipped, %d failed\n", v.how.done, n.Changed, n.Skipped, n.Failed)
	return errors.Join(failed, err)
}
