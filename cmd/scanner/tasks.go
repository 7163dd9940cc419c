package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func tasksCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Lists stored tasks",
		Args:  cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError("name a command: ls")
		},
	}
	cmd.AddCommand(tasksList(s))
	return cmd
}

// tasksFlags select the tasks to list.
type tasksFlags struct {
	topic, state        string
	dueBefore, dueAfter string
	prefix              string
	limit               int
	format              cli.FormatFlag
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

-o json prints one array, -o ndjson one object per line. Exit code 3: no such topic.`,
		Example: `  scanner tasks ls orders --limit 20
  scanner tasks ls orders --state retrying
  scanner tasks find orders --id-prefix customer-17: --due-before 1h -o json`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return listTasks(cmd, s, flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.topic, "topic", "", "the topic; the same as TOPIC")
	f.StringVar(&flags.state, "state", "", "only tasks in this state: waiting, leased, parked or retrying")
	f.StringVar(&flags.dueBefore, "due-before", "", "only tasks due at this time or before")
	f.StringVar(&flags.dueAfter, "due-after", "", "only tasks due at this time or after")
	f.StringVar(&flags.prefix, "id-prefix", "", "only tasks whose IDs begin with this text")
	f.IntVar(&flags.limit, "limit", 0, "at most this many tasks, those with the earliest next attempt (default all)")
	f.VarP(&flags.format, "output", "o", "how to print")
	// fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(listedStates(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// listedStates returns the values of --state.
func listedStates() []string {
	return []string{string(task.Waiting), string(task.Leased), string(task.Parked), string(operate.Retrying)}
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
	if flags.state != "" && !slices.Contains(listedStates(), flags.state) {
		return cli.UsageError(fmt.Sprintf("--state %q: must be waiting, leased, parked or retrying", flags.state))
	}
	now := time.Now()
	tasks := operate.Tasks{State: task.State(flags.state), Prefix: flags.prefix, Limit: flags.limit}
	var err error
	if tasks.DueBefore, err = parseMoment("--due-before", flags.dueBefore, now); err != nil {
		return err
	}
	if tasks.DueAfter, err = parseMoment("--due-after", flags.dueAfter, now); err != nil {
		return err
	}
	rdb, store, err := s.open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	tasks.Topic = store.Topic(flags.topic)
	list := func(visit func(listedTask) error) error {
		var failed error
		err := tasks.Each(cmd.Context(), func(l operate.Listed) bool {
			failed = visit(newListedTask(l))
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		return err
	}
	if flags.format.Format == cli.Table {
		return printTasks(cmd.OutOrStdout(), list, now)
	}
	return printList(cmd.OutOrStdout(), flags.format.Format, list)
}

// printList writes the values that list visits as JSON. If list fails, the values visited
// before are still written completely.
func printList[T any](out io.Writer, format cli.Format, list func(visit func(T) error) error) error {
	to := cli.NewJSONList(out, format)
	err := list(func(v T) error { return to.Add(v) })
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}

// parseMoment parses a flag's time: RFC 3339, Unix milliseconds, or a duration from now as
// parseSpan takes it. An empty text is the zero time. Errors are a cli.UsageError.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		if task.LooksLikeSeconds(ms) {
			return time.Time{}, cli.UsageError(fmt.Sprintf("%s %s: looks like Unix seconds; want milliseconds, as in %s000",
				flag, text, text))
		}
		return time.UnixMilli(ms), nil
	}
	d, ok := parseSpan(text)
	if !ok {
		return time.Time{}, cli.UsageError(fmt.Sprintf("%s %q: want RFC 3339, Unix milliseconds, or a duration from now "+
			"as in 30m, -1h, 2d", flag, text))
	}
	return now.Add(d), nil
}

// parseSpan parses a duration, which may be in days: 30m, -1h, 1.5d.
func parseSpan(text string) (time.Duration, bool) {
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * 24 * float64(time.Hour)), err == nil && math.Abs(n) <= 36500
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// listedTask is one element of `tasks ls -o json`. The times are RFC 3339, and Unix
// milliseconds under the name with _ms.
type listedTask struct {
	Topic string     `json:"topic"`
	ID    string     `json:"id"`
	State task.State `json:"state"`
	// Due and Scheduled are absent if the record can't be read.
	Due         string `json:"due,omitempty"`
	DueMs       int64  `json:"due_ms,omitempty"`
	Scheduled   string `json:"scheduled,omitempty"`
	ScheduledMs int64  `json:"scheduled_ms,omitempty"`
	// NextAttempt is the time of the next attempt, or the end of the lease; absent if parked.
	NextAttempt   string `json:"next_attempt,omitempty"`
	NextAttemptMs int64  `json:"next_attempt_ms,omitempty"`
	// Attempts is how often the broker returned or refused the task.
	Attempts    int    `json:"attempts"`
	Redelivered bool   `json:"redelivered"`
	Reason      string `json:"reason,omitempty"`

	due, next time.Time
}

func newListedTask(l operate.Listed) listedTask {
	out := listedTask{
		Topic: l.Topic, ID: l.ID, State: l.State, Attempts: max(l.Attempt-1, 0),
		Redelivered: l.Redelivered, Reason: l.Reason, due: l.Due, next: l.Next,
	}
	out.Due, out.DueMs = moment(l.Due)
	out.Scheduled, out.ScheduledMs = moment(l.Scheduled)
	out.NextAttempt, out.NextAttemptMs = moment(l.Next)
	return out
}

// moment returns a time as RFC 3339 and as Unix milliseconds, "" and 0 for the zero time.
func moment(t time.Time) (string, int64) {
	if t.IsZero() {
		return "", 0
	}
	return t.UTC().Format(cli.TimeFormat), t.UnixMilli()
}

// tableRows is how many rows a longTable holds and aligns at once.
const tableRows = 1000

// printTasks prints a table of the tasks that list visits, with times relative to now.
func printTasks(out io.Writer, list func(visit func(listedTask) error) error, now time.Time) error {
	t := longTable{out: out, head: "ID\tSTATE\tDUE\tNEXT ATTEMPT\tATTEMPTS\tREASON"}
	return t.print("no such tasks\n", func() error {
		return list(func(l listedTask) error {
			next := "-"
			if !l.next.Equal(l.due) {
				next = cli.Relative(l.next, now)
			}
			return t.row("%s\t%s\t%s\t%s\t%d\t%s", cli.ID(shard.ShortID(l.ID)), l.State, cli.Relative(l.due, now), next,
				l.Attempts, cli.OneLine(l.Reason))
		})
	})
}

// longTable is a table of any number of rows. It aligns tableRows of them at a time.
type longTable struct {
	out  io.Writer
	head string
	w    *tabwriter.Writer
	rows int
}

// print writes the rows that work adds, or none if work adds no row. If work fails, the
// rows that it added before are still written.
func (t *longTable) print(none string, work func() error) error {
	t.w = tabwriter.NewWriter(t.out, 2, 0, 2, ' ', 0)
	err := work()
	if err == nil && t.rows == 0 {
		_, err = io.WriteString(t.w, none)
	}
	if flushed := t.w.Flush(); err == nil {
		err = flushed
	}
	return err
}

func (t *longTable) row(format string, args ...any) error {
	if t.rows%tableRows == 0 {
		if err := t.w.Flush(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(t.w, t.head); err != nil {
			return err
		}
	}
	t.rows++
	_, err := fmt.Fprintf(t.w, format+"\n", args...)
	return err
}
