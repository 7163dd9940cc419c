package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

func cancelCommand(conn *connection) *cobra.Command {
	r := ndjson.Request{Verb: "cancel"}
	var source sourceFlags
	var prefix, group string
	var confirm cli.Confirmation
	cmd := &cobra.Command{
		Use:   "cancel TOPIC (--id ID | --file F | --id-prefix P | --group G)",
		Short: "Removes tasks, so that they are not delivered",
		Long: `Removes a task. After this command has returned, no scanner delivers the task, unless
it had begun to before. Exits with 3 if there is no such task.

--file removes the tasks of a stream of IDs, one per line. Blanks belong to the ID. A
line that begins with a double quote is a JSON string. Blank lines are skipped.
--id-prefix removes all tasks whose IDs begin with a text. It counts them and asks first;
without a terminal to ask on it needs --yes. --group removes all tasks of a group, and asks
in the same way. It doesn't read the topic's other tasks.

The summary counts the IDs that were cancelled, that were not found, and that failed.
IDs that break a rule are reported with their line numbers, and the others are cancelled.
The first ten such lines are shown, with a count of the others; --errors FILE takes them
all. The exit code is 0 if all were cancelled or not found, else 1. Ctrl-C stops reading
and cancels the tasks of the lines already read.`,
		Example: `  producer cancel orders --id o-1
  producer cancel orders --file ids.txt
  producer cancel orders --id-prefix customer-17: --yes
  producer cancel orders --group customer-17 --yes
  select-paid | producer cancel orders --file - -o json`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			switch n := countGiven(f.Changed("id"), f.Changed("file"), f.Changed("id-prefix"), f.Changed("group")); {
			case n != 1:
				return cli.UsageError("exactly one of --id, --file, --id-prefix and --group must be given")
			case f.Changed("errors") && !f.Changed("file"):
				return cli.UsageError("--errors goes with --file")
			case f.Changed("id-prefix") && prefix == "":
				return cli.UsageError("--id-prefix: is empty, and would select every task")
			case f.Changed("id-prefix"):
				return cancelPrefix(cmd, conn, r.Topic, prefix, confirm)
			case f.Changed("group"):
				return cancelGroup(cmd, conn, r.Topic, group, confirm)
			case f.Changed("file"):
				return cancelFile(cmd, conn, r.Topic, &source)
			default:
				return conn.perform(cmd, &r)
			}
		}),
	}
	registerTopic(cmd, &r.Topic)
	registerID(cmd, &r.ID, "")
	cmd.Flags().StringVar(&source.file, "file", "", "a file of IDs, one per line, or - for standard input")
	cmd.Flags().StringVar(&prefix, "id-prefix", "", "cancel all tasks whose IDs begin with this text")
	cmd.Flags().StringVar(&group, "group", "", "cancel all tasks of this group")
	source.register(cmd.Flags())
	confirm.Register(cmd)
	return cmd
}

// countGiven returns how many of its arguments are true.
func countGiven(flags ...bool) (n int) {
	for _, given := range flags {
		if given {
			n++
		}
	}
	return n
}

func cancelFile(cmd *cobra.Command, conn *connection, topic string, flags *sourceFlags) error {
	if err := task.CheckTopic(topic); err != nil {
		return err
	}
	return flags.read(cmd, conn, topic, func(source io.Reader, client *producer.Client, bad *badLines) (output, error) {
		return cancelLines(cmd.Context(), conn, topic, source, client, bad)
	})
}

func cancelLines(ctx context.Context, conn *connection, topic string, source io.Reader, client *producer.Client,
	bad *badLines) (output, error) {
	c := canceller{
		topic:  topic,
		cancel: client.CancelMany,
		bad:    bad.add, progress: bad.progress,
	}
	return c.run(ctx, source, conn.maxPayload)
}

// cancelPrefix cancels all tasks of a topic whose IDs begin with prefix. Without --yes it
// asks first.
func cancelPrefix(cmd *cobra.Command, conn *connection, topic, prefix string, confirm cli.Confirmation) error {
	if err := task.CheckTopic(topic); err != nil {
		return err
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	ids := client.IDs(cmd.Context(), topic, prefix)
	if !confirm.Yes {
		n := int64(0)
		for _, err := range ids {
			if err != nil {
				return fmt.Errorf("cancel %s: %w", topic, err)
			}
			n++
		}
		if err := confirm.Ask(cmd, fmt.Sprintf("cancel %s of topic %s whose IDs begin with %q", cli.Counted(n), topic,
			prefix)); err != nil {
			return err
		}
	}
	bad := newBadLines(cmd.Name(), -1)
	return bad.around(cmd, conn, topic, func() (output, error) {
		return cancelLines(cmd.Context(), conn, topic, idLines(ids), client, bad)
	})
}

// cancelGroup cancels all tasks of a group. Without --yes it asks first.
func cancelGroup(cmd *cobra.Command, conn *connection, topic, group string, confirm cli.Confirmation) error {
	if group == "" {
		return cli.UsageError("--group: is empty")
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	if !confirm.Yes {
		wanted := producer.Matching{Topic: topic, Group: group, DryRun: true}
		n, err := client.CancelMatching(cmd.Context(), wanted)
		if err != nil {
			return fmt.Errorf("cancel %s: %w", topic, err)
		}
		what := fmt.Sprintf("cancel %s of topic %s in group %q", cli.Counted(n.Changed), topic, group)
		if err := confirm.Ask(cmd, what); err != nil {
			return err
		}
	}
	n, err := client.CancelGroup(cmd.Context(), topic, group)
	if err != nil {
		return err
	}
	out := groupOutput{topic, group, n}
	return conn.print(cmd, out.text(), out)
}

// groupOutput is the output of cancel --group.
type groupOutput struct {
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Cancelled int64  `json:"cancelled"`
}

func (o groupOutput) text() string {
	return fmt.Sprintf("cancelled %s of %s in group %q", cli.Counted(o.Cancelled), o.Topic, o.Group)
}

// idLines returns IDs as lines of JSON strings. An error of ids is an error of the reader.
func idLines(ids iter.Seq2[string, error]) io.Reader {
	out, in := io.Pipe()
	go func() {
		lines := bufio.NewWriter(in)
		for id, err := range ids {
			if err == nil {
				err = cli.PrintJSON(lines, id, "")
			}
			if err != nil { // nobody reads the lines, or the topic can't be read
				_ = lines.Flush()
				in.CloseWithError(err)
				return
			}
		}
		in.CloseWithError(lines.Flush()) // nil means end of file
	}()
	return out
}

// cancelSummary is the result of cancelling a stream of IDs.
type cancelSummary struct {
	// Lines counts the lines that are not blank: the sum of the next three fields.
	Lines     int64 `json:"lines"`
	Cancelled int64 `json:"cancelled"`
	// NotFound counts IDs without a task: delivered, cancelled before or never scheduled.
	NotFound int64 `json:"not_found"`
	// Failed counts IDs that break a rule, or are not known to be cancelled.
	Failed int64 `json:"failed"`
	// SafeLine is a line number, counted from 1 with blank lines. Up to that line the
	// tasks of all good lines are removed.
	SafeLine int     `json:"safe_line"`
	Seconds  float64 `json:"seconds"`
	// Rate is the number of cancelled and not found IDs per second.
	Rate float64 `json:"rate"`
}

// text is the summary for people.
func (s cancelSummary) text() string {
	return fmt.Sprintf("%d IDs: %d cancelled, %d not found, %d failed in %.2f s, %.0f/s",
		s.Lines, s.Cancelled, s.NotFound, s.Failed, s.Seconds, s.Rate)
}

// cancelBatch is the most tasks in one call. If Redis dies, the result is unknown for the
// tasks of at most loadBatchers calls.
const cancelBatch = 64

// canceller cancels a stream of IDs.
type canceller struct {
	topic string
	// cancel removes tasks. It is called from several goroutines.
	cancel func(ctx context.Context, topic string, ids []string) []error
	// bad receives every bad line. Progress receives the offset in bytes at which a line
	// ends, once the line is done or refused. Calls come one at a time, in line order.
	bad      func(line int, err error)
	progress func(end int)

	sum    cancelSummary
	undone int64 // good lines that are not known to be cancelled
	// failure is the error that ended the work early, nil if there is none.
	failure atomic.Pointer[error]
}

// run cancels the IDs in r until its end, a failure, or the end of ctx. After the end of
// ctx it still cancels the IDs already read. The summary is valid with an error, too.
func (c *canceller) run(ctx context.Context, r io.Reader, maxPayload int) (cancelSummary, error) {
	start := time.Now()
	reading, halt := context.WithCancel(ctx)
	defer halt()
	s := ndjson.Stream{
		Parse: c.parse, Do: c.do, MaxPayload: maxPayload,
		Together: []string{"cancel"}, Batchers: loadBatchers, Batch: cancelBatch, Ahead: (2*loadBatchers - 1) * cancelBatch,
		Finished: func(r *ndjson.Request) { c.count(r, halt) }, Idle: func() {},
	}
	err := s.Run(reading, ndjson.Interruptible(reading, r))
	took := time.Since(start).Seconds()
	c.sum.Seconds = math.Round(took*1000) / 1000
	c.sum.Rate = math.Round(float64(c.sum.Cancelled+c.sum.NotFound) / max(took, 1e-6))
	if c.undone == 0 {
		c.sum.SafeLine = s.Read()
	}
	return c.sum, c.outcome(err)
}

func (c *canceller) parse(line []byte) (*ndjson.Request, error) {
	r := &ndjson.Request{Verb: "cancel"}
	r.Topic = c.topic
	var err error
	if r.ID, err = ndjson.ParseID(line); err != nil {
		return r, err
	}
	return r, task.CheckID(r.ID)
}

// do cancels a batch. After a failure it starts no other batch.
func (c *canceller) do(ctx context.Context, batch []*ndjson.Request) {
	if failure := c.failure.Load(); failure != nil {
		for _, r := range batch {
			r.Reply(nil, *failure)
		}
		return
	}
	ids := make([]string, len(batch))
	for i, r := range batch {
		ids[i] = r.ID
	}
	for i, err := range c.cancel(ctx, c.topic, ids) {
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			c.failure.CompareAndSwap(nil, &err)
		}
		batch[i].Reply(nil, err)
	}
}

// count adds a line to the summary, and calls halt if reading makes no sense any more.
func (c *canceller) count(r *ndjson.Request, halt func()) {
	var wrong ndjson.BadLineError
	c.sum.Lines++
	switch {
	case r.Err == nil:
		c.sum.Cancelled++
	case errors.Is(r.Err, task.ErrNotFound):
		c.sum.NotFound++
	case errors.As(r.Err, &wrong):
		c.sum.Failed++
		c.bad(r.Line, r.Err)
	default:
		c.sum.Failed++
		if c.undone++; c.undone == 1 {
			c.sum.SafeLine = r.Line - 1
		}
		halt()
	}
	c.progress(r.End)
}

// outcome returns the error of the whole run, of several the most serious one.
func (c *canceller) outcome(read error) error {
	failure := c.failure.Load()
	switch {
	case failure != nil:
		return fmt.Errorf("stopped; %s: %w", c.sum.done(), *failure)
	case read != nil:
		return fmt.Errorf("stopped; %s: %w", c.sum.done(), read)
	case c.sum.Failed > 0:
		return fmt.Errorf("%d of %d lines are bad; all others are cancelled or were not found", c.sum.Failed, c.sum.Lines)
	default:
		return nil
	}
}

// done describes up to which line a stream that stopped is done.
func (s cancelSummary) done() string {
	switch {
	case s.Cancelled+s.NotFound == 0:
		return "nothing is known to be cancelled"
	case s.SafeLine == 0:
		return "line 1 is not known to be cancelled"
	default:
		return fmt.Sprintf("every good line up to line %d is done", s.SafeLine)
	}
}
