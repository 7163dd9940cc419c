package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// loadBatchers is how many batches are in flight at most.
	loadBatchers = 4
	defaultBatch = 500
	// badLinesShown is how many bad lines are shown one by one. In a file of the wrong
	// format every line is bad.
	badLinesShown = 10
)

// loadFlags are the flags of the verb load.
type loadFlags struct {
	sourceFlags
	topic    string
	batch    int
	strict   bool
	ifAbsent bool
}

func loadCommand(conn *connection) *cobra.Command {
	var flags loadFlags
	cmd := &cobra.Command{
		Use:   "load [TOPIC] [--file F | -]",
		Short: "Schedules a stream of tasks, one JSON object per line",
		Long: `Schedules a stream of tasks, one JSON object per line:

  {"id":"o-1","in":"30m","payload":"..."}

With TOPIC all lines are of that topic, and a line with another "topic" is bad. Without
TOPIC each line has its own:

  {"topic":"orders","id":"o-1","in":"30m","payload":"..."}

"in" is a duration, "at" is RFC 3339 or Unix milliseconds. A task in the past is delivered
at once; if it was due more than a minute ago, it is also counted as past due.
"payload_base64" is for bytes that aren't text. Optional are "headers", "content_type",
"routing_key", "priority", "expiration" (a duration), "correlation_id" and "reply_to". A
"payload" may also be an object, an array, a number, true or false. It is stored byte for
byte. Then the default of "content_type" is application/json:

  {"id":"o-1","in":"30m","payload":{"order":1}}

"recurrence" makes the task recur. It has "every", or "cron" and "zone". Optional are "until",
"runs" and "each". "in" or "at" is then the first run, and may be absent:

  {"id":"o-1","recurrence":{"cron":"0 9 1 * *","zone":"Europe/Berlin"}}

"series" is the recurring task's ID, in a run that is a task of its own. Export writes it.

"amqp" replaces all optional fields, but not the payload and the rule. It is a message as a
topic's intake stores it, in the form of get and export: "routing_key", "properties", and
"headers" with their types:

  {"id":"o-1","in":"30m","amqp":{"headers":{"n":{"type":"int32","value":7}}}}

Lines from a pipe are written within 50 ms of their arrival. Lines with the same topic and
ID are written in their order; others may overtake each other. Bad lines are reported with their
numbers, good ones are written, and the exit code is 1. The first ten bad lines are
shown, with a count of the others; --errors FILE takes them all. Ctrl-C stops reading and
writes the lines already read.`,
		Example: `  producer load orders --file orders.ndjson
  generate | producer load orders --strict -o json -
  producer export --all | producer load --redis-addr other:6379`,
		Args: flags.arguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return load(cmd, conn, &flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.topic, "topic", "", "the topic of all lines; the same as TOPIC (default each line has its own)")
	f.StringVar(&flags.file, "file", "-", "the file to read, or - for standard input")
	flags.register(f)
	f.IntVar(&flags.batch, "batch", defaultBatch,
		fmt.Sprintf("most tasks in one call to Redis, 1 to %d", ndjson.MaxBatch))
	f.BoolVar(&flags.strict, "strict", false, "stop at the first bad line and write nothing after it")
	f.BoolVar(&flags.ifAbsent, "if-absent", false,
		"leave pending tasks with the same IDs as they are, and count them as existing")
	return cmd
}

// arguments accepts a topic, a dash for standard input, or both in this order.
func (l *loadFlags) arguments(cmd *cobra.Command, args []string) error {
	if last := len(args) - 1; last >= 0 && args[last] == "-" {
		if l.file != "-" {
			return cli.UsageError("only one of --file and - may be given")
		}
		args = args[:last]
	}
	if len(args) > 0 && args[0] == "-" { // a topic of that name needs the flag
		return cli.NoArguments(cmd, args)
	}
	return cli.TopicArgument(cmd, args)
}

func load(cmd *cobra.Command, conn *connection, flags *loadFlags) error {
	if flags.batch < 1 || flags.batch > ndjson.MaxBatch {
		return cli.UsageError(fmt.Sprintf("--batch %d: must be 1 to %d", flags.batch, ndjson.MaxBatch))
	}
	if cmd.Flags().Changed("topic") {
		if err := task.CheckTopic(flags.topic); err != nil {
			return err
		}
	}
	return flags.read(cmd, conn, flags.topic, func(source io.Reader, client *producer.Client, bad *badLines) (output,
		error) {
		l := loader{
			decoder: ndjson.Decoder{Topic: flags.topic, IfAbsent: flags.ifAbsent, MaxPayload: conn.maxPayload, Now: time.Now},
			batch:   flags.batch, strict: flags.strict,
			write: client.ScheduleMany,
			bad:   bad.add, progress: bad.progress,
		}
		return l.load(cmd.Context(), source)
	})
}

// sourceFlags are the flags of a verb that reads a stream of lines.
type sourceFlags struct {
	file   string
	errors string
}

// register adds --errors. Each verb adds --file with a default of its own.
func (s *sourceFlags) register(f *pflag.FlagSet) {
	f.StringVar(&s.errors, "errors", "", "a file for the numbers and reasons of all bad lines; it is overwritten")
}

// read opens the source and a client, calls work, and prints its output. Work reports bad
// lines and progress to bad. Its output is printed even if it fails.
func (s *sourceFlags) read(
	cmd *cobra.Command, conn *connection, topic string,
	work func(source io.Reader, client *producer.Client, bad *badLines) (output, error),
) (err error) {
	source, info, err := openSource(s.file)
	if err != nil {
		return err
	}
	defer source.Close()
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	bad := newBadLines(cmd.Name(), sizeOf(info))
	if err := bad.open(s.errors, info); err != nil {
		return err
	}
	return bad.around(cmd, conn, topic, func() (output, error) { return work(source, client, bad) })
}

// sizeOf returns the size of a regular file in bytes, else -1.
func sizeOf(info os.FileInfo) int64 {
	if info.Mode().IsRegular() {
		return info.Size()
	}
	return -1
}

// openSource opens a file, or standard input for "-", and describes it.
func openSource(name string) (file *os.File, info os.FileInfo, err error) {
	if file = os.Stdin; name != "-" {
		if file, err = os.Open(name); err != nil {
			return nil, nil, err
		}
	}
	info, err = file.Stat()
	return file, info, err
}

// newBar returns a progress bar on standard error, invisible if that isn't a terminal.
// Size is in bytes; for -1 the bar is a spinner with the rate. The bar never draws by
// itself, because its Clear takes no lock. Callers ignore its errors.
func newBar(verb string, size int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(term.IsTerminal(int(os.Stderr.Fd()))),
		progressbar.OptionSetDescription(verb),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(size >= 0),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionClearOnFinish(),
	)
}

// badLines reports refused lines: the first ones at once, and the number of the others at
// the end. If --errors names a file, it writes all of them to it.
type badLines struct {
	noun  string                   // "bad lines", unless they are something else.
	bar   *progressbar.ProgressBar // cleared before each line of text.
	count int
	file  *os.File // nil without --errors
	all   *bufio.Writer
}

func newBadLines(verb string, size int64) *badLines {
	return &badLines{noun: "bad lines", bar: newBar(verb, size), all: bufio.NewWriter(io.Discard)}
}

// around calls work, prints its output even if it fails, and then closes b.
func (b *badLines) around(cmd *cobra.Command, conn *connection, topic string, work func() (output, error)) (err error) {
	defer func() { err = errors.Join(err, b.close()) }()
	sum, err := work()
	_ = b.bar.Finish()
	if printErr := conn.print(cmd, sum.text(), sum); printErr != nil {
		return printErr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(cmd.Name()+" "+topic), err)
	}
	return nil
}

// open creates or truncates the file, if it has a name. It refuses the loaded file, if there
// is one.
func (b *badLines) open(name string, loaded os.FileInfo) (err error) {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil && loaded != nil && loaded.Mode().IsRegular() && os.SameFile(info, loaded) {
		return cli.UsageError(fmt.Sprintf("--errors %s: is the file that is loaded, and would be overwritten", name))
	}
	if b.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return fmt.Errorf("--errors: %w", err)
	}
	b.all = bufio.NewWriter(b.file)
	return nil
}

// progress draws the bar; end is the number of bytes done.
func (b *badLines) progress(end int) { _ = b.bar.Set(end) }

// add reports one line.
func (b *badLines) add(line int, reason error) { b.report(fmt.Sprintf("line %d: %v", line, reason)) }

// report reports a text. An error of writing to the file is returned by close.
func (b *badLines) report(text string) {
	text = cli.OneLine(text) + "\n"
	if b.count++; b.count <= badLinesShown {
		_ = b.bar.Clear()
		_, _ = os.Stderr.WriteString("producer: " + text) // an error has no place to go
	}
	_, _ = b.all.WriteString(text) // bufio keeps the error for close
}

// close prints how many lines were not shown, and closes the file.
func (b *badLines) close() error {
	where := "--errors FILE takes them all"
	if b.file != nil {
		where = "all are in " + b.file.Name()
	}
	if more := b.count - badLinesShown; more > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "producer: %d more %s are not shown; %s\n", more, b.noun, where)
	}
	if b.file == nil {
		return nil
	}
	if err := errors.Join(b.all.Flush(), b.file.Close()); err != nil {
		return fmt.Errorf("--errors: not all bad lines are written: %w", err)
	}
	return nil
}

// summary is the result of loading a stream of lines.
type summary struct {
	// Lines counts the lines that are not blank: the sum of the next four fields.
	Lines     int64 `json:"lines"`
	Scheduled int64 `json:"scheduled"`
	Existing  int64 `json:"existing"`
	Bad       int64 `json:"bad"`
	// Unwritten counts good lines that are not known to be in Redis.
	Unwritten int64 `json:"unwritten"`
	// SafeLine is a line number, counted from 1 with blank lines. Up to that line all
	// good lines are in Redis.
	SafeLine int     `json:"safe_line"`
	Seconds  float64 `json:"seconds"`
	// Rate is the number of scheduled tasks per second.
	Rate float64 `json:"rate"`
	// PastDue counts the scheduled tasks that were due more than a minute ago.
	PastDue int64 `json:"past_due"`
}

// text is the summary for people.
func (s summary) text() string {
	text := fmt.Sprintf("%d lines: %d scheduled, %d existing, %d bad", s.Lines, s.Scheduled, s.Existing, s.Bad)
	if s.Unwritten > 0 {
		text += fmt.Sprintf(", %d not written", s.Unwritten)
	}
	text += fmt.Sprintf(" in %.2f s, %.0f/s", s.Seconds, s.Rate)
	if s.PastDue > 0 {
		text += fmt.Sprintf("; %d due in the past: delivered at once", s.PastDue)
	}
	return text
}

// in describes which lines are in Redis after a load that stopped. After a lost reply more
// lines may be in Redis.
func (s summary) in() string {
	written := s.Scheduled + s.Existing
	switch {
	case written == 0 && s.Unwritten == 0:
		return "nothing is in"
	case written == 0:
		return "nothing is known to be in"
	case s.SafeLine == 0:
		return fmt.Sprintf("%d of %d lines are in, but line 1 is not known to be", written, s.Lines)
	default:
		return fmt.Sprintf("every good line up to line %d is in", s.SafeLine)
	}
}

// loader writes a stream of NDJSON lines as tasks.
type loader struct {
	decoder ndjson.Decoder
	batch   int // the most tasks of one write
	// strict stops at the first bad line, and writes nothing after it.
	strict bool
	// write stores tasks and returns one result for each, in order. It is called from
	// several goroutines.
	write func(ctx context.Context, requests []producer.Request) []producer.Result
	// bad receives every bad line. Progress receives the offset in bytes at which a line
	// ends, once the line is written or refused. Calls come one at a time, in line order.
	bad      func(line int, err error)
	progress func(end int)

	sum summary
	// failure is the error that ended the load early, nil if there is none.
	failure atomic.Pointer[error]
}

// load writes the lines of r until its end, a failure, or the end of ctx. After the end of
// ctx it still writes the lines already read. The summary is valid with an error, too.
func (l *loader) load(ctx context.Context, r io.Reader) (summary, error) {
	start := time.Now()
	reading, halt := context.WithCancel(ctx)
	defer halt()
	s := ndjson.Stream{
		Parse: l.decoder.Decode, Do: l.do, Together: []string{"schedule"}, MaxPayload: l.decoder.MaxPayload, Strict: l.strict,
		// Each batcher may have one batch in flight, and all but one a second one waiting.
		Batchers: loadBatchers, Batch: l.batch, Ahead: (2*loadBatchers - 1) * l.batch,
		Finished: func(r *ndjson.Request) { l.count(r, halt) }, Idle: func() {},
	}
	err := s.Run(reading, ndjson.Interruptible(reading, r))
	took := time.Since(start).Seconds()
	l.sum.Seconds = math.Round(took*1000) / 1000
	l.sum.Rate = math.Round(float64(l.sum.Scheduled) / max(took, 1e-6))
	if l.sum.Unwritten == 0 {
		l.sum.SafeLine = s.Read()
	}
	return l.sum, l.outcome(err)
}

// do writes a batch, and replies to each request whether it was past due. After a failure
// it starts no other batch.
func (l *loader) do(ctx context.Context, batch []*ndjson.Request) {
	if failure := l.failure.Load(); failure != nil {
		for _, r := range batch {
			r.Reply(nil, *failure)
		}
		return
	}
	for i, result := range l.write(ctx, ndjson.Tasks(batch)) {
		err := result.Err
		if err != nil && !errors.Is(err, task.ErrExists) && !l.refused(err) {
			l.failure.CompareAndSwap(nil, &err)
		}
		batch[i].Reply(ndjson.Past(batch[i].When, result.Due) > pastDue, err)
	}
}

// refused reports whether an error is about one line alone. An unknown topic is, if each line
// names its own.
func (l *loader) refused(err error) bool {
	return errors.Is(err, task.ErrInvalid) || l.decoder.Topic == "" && errors.Is(err, task.ErrUnknownTopic)
}

// count adds a line to the summary, and calls halt if reading makes no sense any more.
func (l *loader) count(r *ndjson.Request, halt func()) {
	var wrong ndjson.BadLineError
	l.sum.Lines++
	switch {
	case r.Err == nil:
		l.sum.Scheduled++
		if past, _ := r.Answer.(bool); past {
			l.sum.PastDue++
		}
	case errors.Is(r.Err, task.ErrExists):
		l.sum.Existing++
	case errors.As(r.Err, &wrong), l.refused(r.Err):
		l.sum.Bad++
		l.bad(r.Line, r.Err)
		if l.strict {
			halt()
		}
	default:
		if l.sum.Unwritten++; l.sum.Unwritten == 1 {
			l.sum.SafeLine = r.Line - 1
		}
		halt()
	}
	l.progress(r.End)
}

// outcome returns the error of the whole load, of several the most serious one.
func (l *loader) outcome(read error) error {
	failure := l.failure.Load()
	switch {
	case failure != nil:
		return fmt.Errorf("stopped; %s: %w", l.sum.in(), *failure)
	case l.sum.Bad > 0 && l.strict:
		return errors.New("stopped at the bad line; nothing after it is in (--strict)")
	case read != nil:
		return fmt.Errorf("stopped; %s: %w", l.sum.in(), read)
	case l.sum.Bad > 0:
		return fmt.Errorf("%d of %d lines are bad and were not written; fix them and load them again", l.sum.Bad, l.sum.Lines)
	default:
		return nil
	}
}
