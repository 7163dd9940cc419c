package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// exportStates returns the values of --state.
func exportStates() []string {
	return []string{string(task.Waiting), string(producer.Retrying), string(task.Leased), string(task.Parked)}
}

// exportFlags are the flags of the verb export.
type exportFlags struct {
	topics              []string
	all                 bool
	file, errors        string
	prefix              string
	states              []string
	dueBefore, dueAfter string
}

func exportCommand(conn *connection) *cobra.Command {
	var flags exportFlags
	cmd := &cobra.Command{
		Use:   "export (TOPIC... | --all) [--file F | -]",
		Short: "Writes stored tasks as lines that load reads",
		Long: `Writes the stored tasks of topics, one JSON object per line, in no order. load reads these
lines: a topic can be copied to another installation, or under another name. With one TOPIC
the lines have no "topic", so that load can give them any. With several, or with --all, each
line has its own.

A line has all that load can set: due time ("at"), payload, headers and message options.
After load, attempts count from 1, and the first due time is the due time. A task that came
through a topic's intake has "amqp" instead of headers and options: its whole message, with
the types of its headers.

A recurring task has "recurrence": its rule, and the runs that are left. "at" is its stored
run, moved or not, and becomes the first run. If it was moved, "every" then counts from there.
"cron" still has the date that the rule planned for it, if that is later.

All tasks are written, whatever their state. The summary counts each state:
- waiting: for the first attempt
- retrying: for another attempt. After load it is due at once if the broker gave it back, and
  at the same time if its consumer failed.
- leased: a scanner is delivering it. After load it is delivered a second time.
- parked: after the last attempt. After load it is due at once, as after a replay.

--state selects some of them. --due-before and --due-after take RFC 3339, Unix milliseconds,
or a duration from now: 30m, -1h, 2d. For a retry the original due time counts. With --state
or a due time, a task that is claimed, retried or rescheduled meanwhile may be missing. Without
them each task is written that stays stored until the end, also while the shard count changes.

It reads one page at a time and delays nobody. It doesn't change the topic: to move one, stop its
producers, pause it, export it, load it, and then remove it.

--file replaces F only when all is written. If the export fails or is interrupted, F stays as
it was. Tasks that can't be written are reported, the others are written, and the exit code is
1. The first ten are shown, with a count of the others; --errors FILE takes them all. With
--file the summary goes to standard output, else to standard error.`,
		Example: `  producer export orders --file orders.ndjson
  producer export orders --state waiting,retrying | producer load orders-2
  producer export --all --file all.ndjson -o json`,
		Args:              flags.arguments,
		ValidArgsFunction: conn.completeTopics,
		RunE:              cli.Verb(func(cmd *cobra.Command, _ []string) error { return export(cmd, conn, &flags) }),
	}
	f := cmd.Flags()
	f.StringArrayVar(&flags.topics, "topic", nil, "a topic, the same as TOPIC; may be repeated")
	f.BoolVar(&flags.all, "all", false, "export all topics")
	f.StringVar(&flags.file, "file", "-", "the file to write, or - for standard output; an existing file is replaced")
	f.StringVar(&flags.errors, "errors", "", "a file for the names and reasons of all tasks that can't be written; "+
		"it is overwritten")
	f.StringVar(&flags.prefix, "id-prefix", "", "only tasks whose IDs begin with this text")
	f.StringSliceVar(&flags.states, "state", nil,
		"only tasks in these states: "+strings.Join(exportStates(), ", ")+" (default all)")
	f.StringVar(&flags.dueBefore, "due-before", "", "only tasks due at this time or before")
	f.StringVar(&flags.dueAfter, "due-after", "", "only tasks due at this time or after")
	// fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(exportStates(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// arguments accepts topics, and after them a dash for standard output. A topic named "-" needs
// the flag --topic.
func (e *exportFlags) arguments(_ *cobra.Command, args []string) error {
	if last := len(args) - 1; last >= 0 && args[last] == "-" {
		if e.file != "-" {
			return cli.UsageError("only one of --file and - may be given")
		}
		args = args[:last]
	}
	if slices.Contains(args, "-") {
		return cli.UsageError(`unexpected argument "-"; it comes last, and once`)
	}
	e.topics = append(args, e.topics...)
	switch {
	case e.all && len(e.topics) > 0:
		return cli.UsageError("only one of TOPIC and --all may be given")
	case !e.all && len(e.topics) == 0:
		return cli.UsageError("name a topic, or give --all")
	}
	for i, topic := range e.topics {
		if slices.Contains(e.topics[:i], topic) {
			return cli.UsageError(fmt.Sprintf("topic %s is given twice", ndjson.Clip(topic)))
		}
	}
	return nil
}

// selection checks the flags and returns which tasks are exported.
func (e *exportFlags) selection(now time.Time) (s selection, err error) {
	s.prefix = e.prefix
	for _, state := range e.states {
		if !slices.Contains(exportStates(), state) {
			known := strings.Join(exportStates(), ", ")
			return s, cli.UsageError(fmt.Sprintf("--state %q: must be among %s", ndjson.Clip(state), known))
		}
		s.states = append(s.states, task.State(state))
	}
	if s.from, err = cli.ParseMoment("--due-after", e.dueAfter, now); err == nil {
		s.to, err = cli.ParseMoment("--due-before", e.dueBefore, now)
	}
	return s, err
}

// selection selects tasks. The zero value selects all.
type selection struct {
	prefix   string
	states   []task.State // empty: any
	from, to time.Time    // bound the due time, both included; zero: no bound
}

// filter returns a filter that yields at least the selected tasks. It keeps Redis from reading
// the whole topic where it can.
func (s selection) filter() producer.Filter {
	f := producer.Filter{Prefix: s.prefix, DueFrom: s.from} // no attempt is before the due time
	var stored []task.State
	for _, state := range s.states {
		if state == producer.Retrying {
			state = task.Waiting
		}
		stored = append(stored, state)
	}
	if stored = slices.Compact(stored); len(stored) == 1 {
		f.State = stored[0]
	}
	if !slices.Contains(stored, task.Waiting) && len(stored) > 0 || slices.Equal(s.states, []task.State{task.Waiting}) {
		f.DueTo = s.to // for a retry the filter would look at its next attempt
	}
	return f
}

// holds reports whether a task of a state is selected.
func (s selection) holds(t *producer.Stored, state task.State) bool {
	return (len(s.states) == 0 || slices.Contains(s.states, state)) && !t.Due.Before(s.from) &&
		(s.to.IsZero() || !t.Due.After(s.to))
}

// stateOf returns the state of a task in lists.
func stateOf(s *producer.Stored) task.State {
	if s.State == task.Waiting && (s.Attempt > 1 || s.NextAttempt.After(s.Due)) {
		return producer.Retrying
	}
	return s.State
}

func export(cmd *cobra.Command, conn *connection, flags *exportFlags) (err error) {
	for _, topic := range flags.topics {
		if err := task.CheckTopic(topic); err != nil {
			return err
		}
	}
	selected, err := flags.selection(time.Now())
	if err != nil {
		return err
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	bad := newBadLines(cmd.Name(), -1)
	bad.noun = "tasks"
	to, err := openTarget(cmd, flags.file, flags.errors)
	if err != nil {
		return err
	}
	defer to.abandon()
	if err := bad.open(flags.errors, nil); err != nil {
		return err
	}
	e := exporter{
		client: client, selected: selected, out: bufio.NewWriterSize(to.file, 64<<10),
		failed: bad.report, progress: bad.progress,
	}
	if !to.clearOfBar() {
		e.progress = func(int) {}
	}
	return bad.around(cmd, conn, strings.Join(flags.topics, " "), func() (output, error) {
		err := e.run(cmd.Context(), flags.topics)
		if err == nil {
			err = to.finish()
		}
		return e.sum, e.outcome(err, to)
	})
}

// exportSummary is the result of an export.
type exportSummary struct {
	Topics int `json:"topics"`
	// Tasks counts the lines: the sum of the next four fields.
	Tasks    int64 `json:"tasks"`
	Waiting  int64 `json:"waiting"`
	Retrying int64 `json:"retrying"`
	Leased   int64 `json:"leased"`
	Parked   int64 `json:"parked"`
	// Failed counts tasks that aren't among the lines, since they can't be read or written.
	Failed  int64   `json:"failed"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Rate is the number of lines per second.
	Rate float64 `json:"rate"`
}

// text is the summary for people.
func (s exportSummary) text() string {
	text := fmt.Sprintf("%s: %d waiting, %d retrying, %d leased, %d parked; %d failed, in %.2f s, %.0f/s",
		cli.Counted(s.Tasks), s.Waiting, s.Retrying, s.Leased, s.Parked, s.Failed, s.Seconds, s.Rate)
	if s.Leased > 0 {
		text += "; the leased ones are being delivered, and load delivers them again"
	}
	if s.Parked > 0 {
		text += "; load makes the parked ones due at once"
	}
	return text
}

// exporter writes stored tasks as lines.
type exporter struct {
	client   *producer.Client
	selected selection
	out      *bufio.Writer
	// failed receives a text about each task that can't be written. progress receives the
	// number of bytes written.
	failed   func(text string)
	progress func(bytes int)

	line []byte
	sum  exportSummary
}

// run writes the tasks of topics, or of all if none is named. A task that can't be written
// doesn't end it. e.sum is valid with an error, too.
func (e *exporter) run(ctx context.Context, topics []string) (err error) {
	start := time.Now()
	withTopic := len(topics) != 1
	if len(topics) == 0 {
		topics, err = e.client.Topics(ctx)
	}
	for _, topic := range topics {
		if err == nil {
			err = e.topic(ctx, topic, withTopic)
		}
	}
	if err == nil {
		err = e.out.Flush()
	}
	took := time.Since(start).Seconds()
	e.sum.Seconds = math.Round(took*1000) / 1000
	e.sum.Rate = math.Round(float64(e.sum.Tasks) / max(took, 1e-6))
	return err
}

// topic writes the tasks of one topic.
func (e *exporter) topic(ctx context.Context, topic string, withTopic bool) error {
	e.sum.Topics++
	for s, err := range e.client.List(ctx, topic, e.selected.filter()) {
		switch {
		case err != nil && s.ID == "":
			return err
		case err != nil:
			e.fail(err.Error())
		default:
			if err := e.write(&s, withTopic); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a task, if it is selected.
func (e *exporter) write(s *producer.Stored, withTopic bool) (err error) {
	state := stateOf(s)
	if !e.selected.holds(s, state) {
		return nil
	}
	if e.line, err = ndjson.AppendLine(e.line[:0], s, withTopic); err != nil {
		e.fail(fmt.Sprintf("topic %s, ID %q: %v", s.Topic, s.ID, err))
		return nil
	}
	if _, err := e.out.Write(e.line); err != nil {
		return err
	}
	e.sum.Bytes += int64(len(e.line))
	e.progress(int(e.sum.Bytes))
	e.sum.Tasks++
	switch state {
	case producer.Retrying:
		e.sum.Retrying++
	case task.Leased:
		e.sum.Leased++
	case task.Parked:
		e.sum.Parked++
	default:
		e.sum.Waiting++
	}
	return nil
}

func (e *exporter) fail(text string) {
	e.sum.Failed++
	e.failed(text)
}

// outcome returns the error of the whole export. err is the one that ended it early.
func (e *exporter) outcome(err error, to *target) error {
	switch {
	case err != nil && to.path != "":
		return fmt.Errorf("stopped; %s is not written: %w", to.path, err)
	case err != nil:
		return fmt.Errorf("stopped; not all tasks are written: %w", err)
	case e.sum.Failed > 0:
		return fmt.Errorf("%d of %d tasks could not be written; all others are", e.sum.Failed, e.sum.Failed+e.sum.Tasks)
	}
	return nil
}
