package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// loadLanes is how many batches are on their way at most.
	loadLanes    = 4
	defaultBatch = 500
	// badLinesShown is how many bad lines are shown one by one: a stream of the wrong
	// kind has nothing but bad lines.
	badLinesShown = 10
)

// loadFlags are those of the verb load.
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
		Use:   "load TOPIC [--file F | -]",
		Short: "Schedules a stream of tasks, one JSON object a line",
		Long: `Schedules a stream of tasks, one JSON object a line:

  {"id":"o-1","in":"30m","payload":"..."}

"in" is a duration and "at" RFC 3339 or Unix milliseconds; what was due more than a
minute ago is delivered at once, and counted. "payload_base64" is for bytes;
"headers", "content_type", "routing_key", "priority", "expiration" (a duration),
"correlation_id" and "reply_to" may be given. A "payload" that is an object, an array, a
number, true or false is taken byte for byte as it stands in the line, and
"content_type" is application/json where it isn't given:

  {"id":"o-1","in":"30m","payload":{"order":1}}

What a pipe has brought is written within 50 ms. Lines of one ID are written in their
order; others may overtake each other. Bad lines are reported with their numbers, ten of
them and a count, or all in the file that --errors names, and the exit code is 1; the
good ones are written.
Ctrl-C stops reading and writes what was read.`,
		Example: `  producer load orders --file orders.ndjson
  generate | producer load orders --strict -o json -`,
		Args: flags.arguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return load(cmd, conn, &flags) }),
	}
	registerTopic(cmd, &flags.topic)
	f := cmd.Flags()
	f.StringVar(&flags.file, "file", "-", "the file to read, or - for standard input")
	flags.register(f)
	f.IntVar(&flags.batch, "batch", defaultBatch, fmt.Sprintf("most tasks in one call to Redis, 1 to %d", maxBatch))
	f.BoolVar(&flags.strict, "strict", false, "stop at the first bad line and write nothing after it")
	f.BoolVar(&flags.ifAbsent, "if-absent", false, "leave pending tasks of the same IDs as they are, and count them as existing")
	return cmd
}

// arguments takes the topic, and behind it or alone a dash, which stands for standard
// input as everywhere.
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
	if flags.batch < 1 || flags.batch > maxBatch {
		return cli.UsageError(fmt.Sprintf("--batch %d: must be 1 to %d", flags.batch, maxBatch))
	}
	if err := task.CheckTopic(flags.topic); err != nil {
		return err
	}
	return flags.read(cmd, conn, flags.topic, func(source io.Reader, client *producer.Client, bad *badLines) (output, error) {
		l := loader{
			decoder: lineDecoder{topic: flags.topic, ifAbsent: flags.ifAbsent, maxPayload: conn.maxPayload, now: time.Now},
			batch:   flags.batch, strict: flags.strict,
			write: client.ScheduleMany,
			bad:   bad.add, progress: bad.progress,
		}
		return l.load(cmd.Context(), source)
	})
}

// sourceFlags are those of a verb that reads a stream of lines.
type sourceFlags struct {
	file   string
	errors string
}

// register adds --errors; what --file is without being given is the verb's matter.
func (s *sourceFlags) register(f *pflag.FlagSet) {
	f.StringVar(&s.errors, "errors", "", "a file for all bad lines, numbers and reasons, made anew")
}

// read hands work the lines, a client, and where bad lines and progress are told of, and
// prints what it returns, which holds with an error too.
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

// sizeOf is how many bytes will be read; -1: nobody knows.
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

// newBar draws on standard error if that is a terminal, and nothing elsewhere. It is a
// spinner with the rate where the size in bytes isn't known, -1. It draws when it
// is told to and never by itself: its Clear takes no lock. A bar that can't be drawn is
// no reason to stop.
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

// badLines tells of the lines that were refused: the first ones as they come,
// how many more there are at the end, and all of them to a file if one is named.
type badLines struct {
	bar   *progressbar.ProgressBar // cleared for a line of text
	count int
	file  *os.File // nil: none is named
	all   *bufio.Writer
}

func newBadLines(verb string, size int64) *badLines {
	return &badLines{bar: newBar(verb, size), all: bufio.NewWriter(io.Discard)}
}

// around prints what work returns, which holds with an error too, and ends with what was
// to be told of bad lines.
func (b *badLines) around(cmd *cobra.Command, conn *connection, topic string, work func() (output, error)) (err error) {
	defer func() { err = errors.Join(err, b.close()) }()
	sum, err := work()
	_ = b.bar.Finish()
	if printErr := conn.print(cmd, sum.text(), sum); printErr != nil {
		return printErr
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", cmd.Name(), topic, err)
	}
	return nil
}

// open makes the file, if one is named, anew. It must not be the one that is loaded.
func (b *badLines) open(name string, loaded os.FileInfo) (err error) {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil && loaded.Mode().IsRegular() && os.SameFile(info, loaded) {
		return cli.UsageError(fmt.Sprintf("--errors %s: that is what is loaded, and would be overwritten", name))
	}
	if b.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return fmt.Errorf("--errors: %w", err)
	}
	b.all = bufio.NewWriter(b.file)
	return nil
}

// progress draws how far the lines are done, in bytes.
func (b *badLines) progress(end int) { _ = b.bar.Set(end) }

// add tells of one line. What can't be written is told by close.
func (b *badLines) add(line int, reason error) {
	text := fmt.Sprintf("line %d: %s\n", line, cli.OneLine(reason.Error()))
	if b.count++; b.count <= badLinesShown {
		_ = b.bar.Clear()
		_, _ = os.Stderr.WriteString("producer: " + text) // nowhere to say so
	}
	_, _ = b.all.WriteString(text) // bufio keeps the error for close
}

// close says how many lines were not shown, and ends the file.
func (b *badLines) close() error {
	where := "--errors FILE takes them all"
	if b.file != nil {
		where = "all are in " + b.file.Name()
	}
	if more := b.count - badLinesShown; more > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "producer: %d more bad lines are not shown; %s\n", more, where)
	}
	if b.file == nil {
		return nil
	}
	if err := errors.Join(b.all.Flush(), b.file.Close()); err != nil {
		return fmt.Errorf("--errors: not all bad lines are written: %w", err)
	}
	return nil
}

// summary is what became of a stream of lines.
type summary struct {
	// Lines read that are not blank: the sum of the four below.
	Lines     int64 `json:"lines"`
	Scheduled int64 `json:"scheduled"`
	Existing  int64 `json:"existing"`
	Bad       int64 `json:"bad"`
	// Unwritten lines were good and are not known to be in Redis.
	Unwritten int64 `json:"unwritten"`
	// SafeLine is the number of the last line, counted from 1 with blank ones,
	// up to which every good line is in Redis.
	SafeLine int     `json:"safe_line"`
	Seconds  float64 `json:"seconds"`
	// Rate is scheduled tasks a second.
	Rate float64 `json:"rate"`
	// PastDue of the scheduled tasks were due more than a minute ago.
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

// in says of a load that stopped which lines are in. After a reply that was lost a line
// may be in that isn't known to be.
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
	decoder lineDecoder
	batch   int // the most tasks of one write
	// strict stops at the first bad line, and writes nothing behind it.
	strict bool
	// write stores tasks; one result for each, in order. It is called from several
	// goroutines.
	write func(ctx context.Context, requests []producer.Request) []producer.Result
	// bad is told of every bad line, and progress where each line ends, in bytes, when
	// it is written or refused: one call at a time, in the order of the lines.
	bad      func(line int, err error)
	progress func(end int)

	sum summary
	// failure ended the load before everything read was written.
	failure atomic.Pointer[error]
}

// load reads r to its end, to a reason to stop, or until ctx is cancelled; what
// was read before a cancellation is still written. The error says why not all
// lines are in, and the summary holds either way.
func (l *loader) load(ctx context.Context, r io.Reader) (summary, error) {
	start := time.Now()
	reading, halt := context.WithCancel(ctx)
	defer halt()
	s := stream{
		parse: l.decoder.decode, do: l.do, together: "schedule", maxPayload: l.decoder.maxPayload, strict: l.strict,
		// Each lane but one may have a batch on its way, and the next one waiting.
		lanes: loadLanes, batch: l.batch, ahead: (2*loadLanes - 1) * l.batch,
		finished: func(r *request) { l.count(r, halt) }, idle: func() {},
	}
	err := s.run(reading, r)
	took := time.Since(start).Seconds()
	l.sum.Seconds = math.Round(took*1000) / 1000
	l.sum.Rate = math.Round(float64(l.sum.Scheduled) / max(took, 1e-6))
	if l.sum.Unwritten == 0 {
		l.sum.SafeLine = s.lines.number
	}
	return l.sum, l.outcome(err)
}

// do writes one batch, and replies whether tasks were past due. Once one has failed no
// other is begun.
func (l *loader) do(ctx context.Context, batch []*request) {
	if failure := l.failure.Load(); failure != nil {
		for _, r := range batch {
			r.reply(nil, *failure)
		}
		return
	}
	for i, result := range l.write(ctx, requestsOf(batch)) {
		err := result.Err
		if err != nil && !errors.Is(err, task.ErrExists) && !errors.Is(err, task.ErrInvalid) {
			l.failure.CompareAndSwap(nil, &err)
		}
		batch[i].reply(batch[i].due.past(result.Due) > pastDue, err)
	}
}

// count accounts for a line, and has reading halted where there is no sense in going
// on.
func (l *loader) count(r *request, halt func()) {
	var wrong cli.UsageError
	l.sum.Lines++
	switch {
	case r.err == nil:
		l.sum.Scheduled++
		if past, _ := r.answer.(bool); past {
			l.sum.PastDue++
		}
	case errors.Is(r.err, task.ErrExists):
		l.sum.Existing++
	case errors.As(r.err, &wrong), errors.Is(r.err, task.ErrInvalid):
		l.sum.Bad++
		l.bad(r.line, r.err)
		if l.strict {
			halt()
		}
	default:
		if l.sum.Unwritten++; l.sum.Unwritten == 1 {
			l.sum.SafeLine = r.line - 1
		}
		halt()
	}
	l.progress(r.end)
}

// outcome turns the end of a load into its error: the gravest reason first.
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
		return fmt.Errorf("%d of %d lines are bad and were not written; mend those and load them again", l.sum.Bad, l.sum.Lines)
	default:
		return nil
	}
}
