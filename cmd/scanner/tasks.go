package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func tasksCommand(s *settings) *cobra.Command {
	return cli.Group("tasks", "Lists and changes stored tasks",
		tasksList(s), tasksRunNow(s), tasksMove(s), tasksCancel(s))
}

// tasksFilter selects tasks of a topic.
type tasksFilter struct {
	state               string
	dueBefore, dueAfter string
	prefix, group       string
}

func (f *tasksFilter) register(cmd *cobra.Command, states ...string) {
	flags := cmd.Flags()
	flags.StringVar(&f.state, "state", "", "only tasks in this state: "+oneOf(states))
	flags.StringVar(&f.dueBefore, "due-before", "", "only tasks due at this time or before")
	flags.StringVar(&f.dueAfter, "due-after", "", "only tasks due at this time or after")
	flags.StringVar(&f.prefix, "id-prefix", "", "only tasks whose IDs begin with this text")
	flags.StringVar(&f.group, "group", "", "only tasks of this group; the topic's other tasks aren't read")
	// fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
}

// oneOf lists at least two words, as in "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// tasks validates the flags and returns the selection; durations count from now.
func (f *tasksFilter) tasks(now time.Time, states ...string) (t admin.Tasks, err error) {
	if f.state != "" && !slices.Contains(states, f.state) {
		return t, cli.UsageError(fmt.Sprintf("--state %q: must be %s", f.state, oneOf(states)))
	}
	t = admin.Tasks{State: task.State(f.state), Prefix: f.prefix, Group: f.group}
	if err := task.CheckGroup(f.group); err != nil {
		return t, err
	}
	if t.DueBefore, err = cli.ParseMoment("--due-before", f.dueBefore, now); err == nil {
		t.DueAfter, err = cli.ParseMoment("--due-after", f.dueAfter, now)
	}
	return t, err
}

// tasksFlags select the tasks to list.
type tasksFlags struct {
	topic  string
	filter tasksFilter
	limit  int
	format cli.FormatFlag

	payloads payloadFlag
}

func tasksList(s *settings) *cobra.Command {
	flags := tasksFlags{format: cli.NewListFlag()}
	cmd := &cobra.Command{
		Use:     "ls TOPIC",
		Aliases: []string{"find"},
		Short:   "Lists tasks by state, due time and the beginning of their IDs",
		Long: `Lists the tasks of a topic that match the flags, by default all of them.

The states are:
- waiting: for the first attempt
- leased: by a scanner, until the time in NEXT ATTEMPT
- retrying: for another attempt, because the broker returned or refused the task or its
  consumer failed; REASON has the cause
- parked: after the last attempt

--due-before and --due-after take RFC 3339, Unix milliseconds, or a duration from now:
30m, -1h, 2d.

It reads page by page, so that even a long list delays nobody. It is also right while
the shard count changes. With --limit the tasks whose next attempt comes first are
listed first; without it the list goes shard by shard. A task that is claimed, retried
or rescheduled in the meantime may be missing. The table prints an ID with blanks,
quotes or unprintable characters as a JSON string.

The line below a recurring task has its rule, how many runs are left, when a moved run was
planned, and the times after DUE.

-o json prints one array, -o ndjson one object per line. There a recurring task has
"recurrence": its rule, "runs" that are left, "planned" if the run was moved, and the
"next" three times. A run that is stored as a task of its own, to be retried or parked, has
"series": the ID of the recurring task. A task that came through the topic's intake has
"amqp": routing key, properties, and headers with their types.
Exit code 3: no such topic.`,
		Example: `  scanner tasks ls orders --limit 20
  scanner tasks ls orders --state retrying
  scanner tasks find orders --id-prefix customer-17: --due-before 1h -o json`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return listTasks(cmd, s, flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.topic, "topic", "", "the topic; the same as TOPIC")
	flags.filter.register(cmd, listedStates()...)
	f.IntVar(&flags.limit, "limit", 0, "at most this many tasks, those with the earliest next attempt (default all)")
	f.VarP(&flags.format, "output", "o", "how to print")
	flags.payloads.register(cmd)
	return cmd
}

// listedStates returns the values of --state.
func listedStates() []string {
	return []string{string(task.Waiting), string(task.Leased), string(task.Parked), string(admin.Retrying)}
}

func listTasks(cmd *cobra.Command, s *settings, flags tasksFlags) error {
	if flags.topic == "" {
		return cli.UsageError("name a topic")
	}
	if err := task.CheckTopic(flags.topic); err != nil {
		return err
	}
	if cmd.Flags().Changed("limit") && flags.limit < 1 {
		return cli.UsageError(fmt.Sprintf("--limit %d: must be at least 1", flags.limit))
	}
	if err := flags.payloads.check(flags.format.Format); err != nil {
		return err
	}
	now := time.Now()
	tasks, err := flags.filter.tasks(now, listedStates()...)
	if err != nil {
		return err
	}
	tasks.Limit, tasks.Details = flags.limit, true
	return s.withStore(func(store *shard.Store) error {
		tasks.Topic = store.Topic(flags.topic)
		all := func(yield func(admin.Listed) bool) error { return tasks.Each(cmd.Context(), yield) }
		if flags.format.Format == cli.Table {
			return printTasks(cmd.OutOrStdout(), all, now)
		}
		if flags.payloads {
			return printList(cmd.OutOrStdout(), flags.format.Format, withPayloads(cmd.Context(), store, all,
				func(l admin.Listed) (string, string) { return l.Topic, l.ID }), func(p withPayload[admin.Listed]) taskPayload {
				return taskPayload{admin.NewTaskLine(p.listed, now), p.payload}
			})
		}
		return printList(cmd.OutOrStdout(), flags.format.Format, all,
			func(l admin.Listed) admin.TaskLine { return admin.NewTaskLine(l, now) })
	})
}

// taskPayload is a line with the payload.
type taskPayload struct {
	admin.TaskLine
	payload
}

// each calls yield with values until it returns false.
type each[T any] func(yield func(T) bool) error

// printList writes a line of each value as JSON. If all fails, the values before are still
// written completely.
func printList[T, L any](out io.Writer, format cli.Format, all each[T], line func(T) L) error {
	to := cli.NewJSONList(out, format)
	var failed error
	err := all(func(v T) bool {
		failed = to.Add(line(v))
		return failed == nil
	})
	return cmp.Or(failed, err, to.Close())
}

// printTasks prints a table of the tasks, with times relative to now.
func printTasks(out io.Writer, all each[admin.Listed], now time.Time) error {
	const head = "ID\tSTATE\tDUE\tNEXT ATTEMPT\tATTEMPTS\tREASON"
	return printTable(out, head, "no such tasks\n", all, func(l admin.Listed) string {
		next := "-"
		if !l.Next.Equal(l.Due) {
			next = cli.Relative(l.Next, now)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", cli.ID(shard.ShortID(l.ID)), l.State, cli.Relative(l.Due, now),
			next, max(l.Attempt-1, 0), cli.OneLine(l.Reason)) + ruleLine(l, now)
	})
}

// ruleLine returns a line below the row of a recurring task, with its rule and the times after
// the stored run. It returns "" for any other task. The line is escaped for tabwriter, so that
// it widens no column.
func ruleLine(l admin.Listed, now time.Time) string {
	if l.Recurrence == nil {
		return ""
	}
	r, parts := *l.Recurrence, []string{admin.RuleText(*l.Recurrence)}
	if r.Runs == 1 {
		parts = append(parts, "1 run left")
	} else if r.Runs > 1 {
		parts = append(parts, fmt.Sprintf("%d runs left", r.Runs))
	}
	if r.Each {
		parts = append(parts, "each missed run comes")
	}
	if !r.Planned.IsZero() {
		parts = append(parts, "moved from "+duetime.Text(r.Planned))
	}
	var later []string
	for _, at := range admin.NextTimes(l, now)[1:] {
		later = append(later, duetime.Text(at))
	}
	if len(later) > 0 {
		parts = append(parts, "then "+strings.Join(later, ", "))
	}
	return "\xff\n  " + cli.OneLine(strings.Join(parts, "; ")) + "\xff" // tabwriter.Escape as a byte
}

// tableRows is how many rows printTable holds and aligns at once.
const tableRows = 1000

// printTable prints a table with a row for each value, or the text in none if there is no
// value. If all fails, the rows before are still written.
func printTable[T any](out io.Writer, head, none string, all each[T], row func(T) string) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', tabwriter.StripEscape)
	rows := 0
	var failed error
	err := all(func(v T) bool {
		if rows%tableRows == 0 {
			failed = w.Flush()
			fmt.Fprintln(w, head)
		}
		fmt.Fprintln(w, row(v))
		rows++
		return failed == nil
	})
	if err = cmp.Or(failed, err); err == nil && rows == 0 {
		_, err = io.WriteString(w, none)
	}
	return cmp.Or(err, w.Flush())
}
