package main

import (
	"errors"
	"fmt"
	"io"
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
	verb        bulk.Verb
	done, short string
	long        string   // help for this verb only
	example     string   // its flags
	states      []string // that --state takes
	confirm     cli.Confirmation

	topic      string
	all, dry   bool
	filter     tasksFilter
	in, at, by string
	resume     string
	format     cli.FormatFlag
	change     bulk.Change // made of these flags by check
	selected   bulk.Filter // the same
	total      int64       // how many tasks the question counted
}

func tasksRunNow(s *settings) *cobra.Command {
	v := &tasksVerb{
		verb: bulk.RunNow, done: "made due", short: "Makes waiting tasks due now, for a retry at once; asks before it " +
			"changes more than the named ones",
		long: `A task that waits for a retry keeps its attempts, its message and its first due time.
Tasks that are due already are skipped, and so are parked ones: see parked replay.`,
		example: `  scanner tasks run-now orders o-1 o-2
  scanner tasks run-now orders --state retrying --dry-run
  scanner tasks run-now orders --state retrying --rate 200 --yes`,
		states:  []string{string(task.Waiting), string(admin.Retrying)},
		confirm: cli.Confirmation{Deed: cli.RunsNow()},
	}
	return v.command(s)
}

func tasksMove(s *settings) *cobra.Command {
	v := &tasksVerb{
		verb: bulk.Move, done: "moved", short: "Gives waiting tasks another due time; asks before it changes more " +
			"than the named ones",
		long: `--in and --at are the new due time. --by adds a duration to the next attempt of each
task; a result in the past means now. Attempts, message and the first due time of a
retry stay. Parked tasks are skipped: see parked replay.

An interrupted command prints the flag --resume for the next one, which moves no task
twice.`,
		example: `  scanner tasks move orders o-1 --at 2026-12-01T10:00:00Z
  scanner tasks move orders --due-before 1h --by 2h --dry-run
  scanner tasks move orders --id-prefix customer-17: --in 1d --yes`,
		states:  []string{string(task.Waiting), string(admin.Retrying)},
		confirm: cli.Confirmation{Deed: cli.Moves()},
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
		verb: bulk.Cancel, done: "cancelled", short: "Removes stored tasks for good; asks before it removes more than " +
			"the named ones",
		long: `It removes tasks in every state, parked ones too. A message that is on its way to the
broker, or in a queue, may still arrive. A task that is stored again while the command
runs may be removed as well.`,
		example: `  scanner tasks cancel orders o-1
  scanner tasks cancel orders --id-prefix customer-17: --dry-run`,
		states:  listedStates(),
		confirm: cli.Confirmation{Deed: cli.Cancels()},
	}
	return v.command(s)
}

func (v *tasksVerb) command(s *settings) *cobra.Command {
	v.format = cli.NewFormatFlag(cli.Text)
	cmd := &cobra.Command{
		Use:   string(v.verb) + " TOPIC (ID... | --all | --state S | --due-before T | --due-after T | --id-prefix P)",
		Short: v.short,
		Long: v.short + ".\n\n" + v.long + `

The flags of tasks ls select the tasks. Each task is changed once at most. A
task that is delivered or changed in the meantime is skipped. --limit ends the command
after N tasks, and --rate changes at most N tasks a second. Ctrl-C and a lost connection
end it too: what was ` + v.done + ` stays so, and the same command goes on with the rest.

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
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return v.run(cmd, s) }),
	}
	f := cmd.Flags()
	f.StringVar(&v.topic, "topic", "", "the topic; the same as TOPIC")
	f.BoolVar(&v.all, "all", false, "all tasks of the topic")
	v.filter.register(cmd, v.states...)
	f.IntVar(&v.change.Limit, "limit", 0, "at most this many tasks (default all)")
	f.IntVar(&v.change.Rate, "rate", 0, "at most this many tasks a second (default no limit)")
	f.BoolVar(&v.dry, "dry-run", false, "print how many tasks it would change; change none")
	f.VarP(&v.format, "output", "o", "how to print")
	v.confirm.Register(cmd)
	return cmd
}

func (v *tasksVerb) run(cmd *cobra.Command, s *settings) error {
	if err := v.check(cmd, time.Now()); err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error {
		v.change.Topic = store.Topic(v.topic)
		if v.dry {
			return v.tell(cmd)
		}
		if err := v.ask(cmd); err != nil {
			return err
		}
		return v.work(cmd)
	})
}

// check validates the command line, and makes the change and the filter of it.
func (v *tasksVerb) check(cmd *cobra.Command, now time.Time) error {
	if v.topic == "" {
		return cli.UsageError("name a topic")
	}
	if err := task.CheckTopic(v.topic); err != nil {
		return err
	}
	for name, value := range map[string]int{"limit": v.change.Limit, "rate": v.change.Rate} {
		if cmd.Flags().Changed(name) && value < 1 {
			return cli.UsageError(fmt.Sprintf("--%s %d: must be at least 1", name, value))
		}
	}
	tasks, err := v.filter.tasks(now, v.states...)
	if err != nil {
		return err
	}
	f := &v.selected
	f.State, f.Prefix, f.DueAfter, f.DueBefore = tasks.State, tasks.Prefix, tasks.DueAfter, tasks.DueBefore
	filtered := bulk.Filter{State: f.State, Prefix: f.Prefix, DueAfter: f.DueAfter, DueBefore: f.DueBefore}
	switch some := v.all || !filtered.All(); {
	case len(f.IDs) > 0 && some:
		return cli.UsageError("IDs stand alone: they name the tasks")
	case len(f.IDs) == 0 && !some:
		return cli.UsageError("give IDs or --all, or --state, --due-before, --due-after or --id-prefix")
	}
	v.change.Verb = v.verb
	return v.checkWhen(now)
}

// checkWhen makes the new due time of the flags of move.
func (v *tasksVerb) checkWhen(now time.Time) (err error) {
	v.change.Op = shard.NewOp()
	if v.verb != bulk.Move {
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

// ask asks for confirmation, unless IDs name the tasks or --yes is given.
func (v *tasksVerb) ask(cmd *cobra.Command) error {
	if len(v.selected.IDs) > 0 || v.confirm.Yes {
		return nil
	}
	n, err := bulk.Count(cmd.Context(), v.change, v.selected)
	if err != nil {
		return err
	}
	v.total = n.Changed
	return v.confirm.Ask(cmd, fmt.Sprintf("%s %s", v.confirm.Does(), v.meant(n)))
}

// meant describes the selected tasks, which n counts.
func (v *tasksVerb) meant(n bulk.Counts) string {
	text := fmt.Sprintf("%s in topic %s%s", cli.Counted(n.Changed), v.topic, v.selected)
	if v.selected.All() {
		text = fmt.Sprintf("all that is in topic %s: %s", v.topic, cli.Counted(n.Changed))
	}
	if rate := v.change.Rate; rate > 0 && n.Changed > 0 {
		took := time.Duration(float64(n.Changed) / float64(rate) * float64(time.Second))
		text += fmt.Sprintf(", in about %s", took.Round(time.Second))
	}
	return text
}

// tell prints how many tasks the verb would change.
func (v *tasksVerb) tell(cmd *cobra.Command) error {
	n, err := bulk.Count(cmd.Context(), v.change, v.selected)
	if err != nil {
		return err
	}
	if v.format.Format == cli.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{
			"matched": n.Matched, "would_change": n.Changed, "skipped": n.Skipped, "failed": n.Failed}, "")
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "would %s %s; %d skipped; a dry run, nothing was %s\n", v.confirm.Does(),
		v.meant(n), n.Skipped, v.done)
	return err
}

// work carries out the verb.
func (v *tasksVerb) work(cmd *cobra.Command) error {
	bar := cli.Progress{Out: cmd.ErrOrStderr(), Name: string(v.verb), Said: time.Now()} // a short one prints no line
	n, err := bulk.Run(cmd.Context(), v.change, v.selected, func(n bulk.Counts) {
		bar.Show(n.Changed, max(v.total, n.Changed), func() string {
			return fmt.Sprintf("%s: %d of %d tasks so far, %d skipped", v.verb, n.Changed, n.Matched, n.Skipped)
		})
	})
	bar.Finish()
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted; what was " + v.done + " stays so")
	}
	if err != nil && n == (bulk.Counts{}) {
		return err
	}
	if err != nil && v.verb == bulk.Move && !errors.Is(err, task.ErrNotFound) {
		err = fmt.Errorf("%w; go on with --resume %s", err, bulk.OpText(v.change.Op))
	}
	return errors.Join(v.print(cmd.OutOrStdout(), n), err)
}

// print prints what was changed.
func (v *tasksVerb) print(out io.Writer, n bulk.Counts) error {
	if v.format.Format == cli.JSON {
		return cli.PrintJSON(out, n, "")
	}
	_, err := fmt.Fprintf(out, "%s %d; %d skipped, %d failed\n", v.done, n.Changed, n.Skipped, n.Failed)
	return err
}
