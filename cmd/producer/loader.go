package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/producer"
)

const (
	// lanes is how many batches are in flight at most.
	lanes = 4
	// memoryBudget bounds what the lines between reading and Redis hold, in
	// bytes, whatever their number and size.
	memoryBudget = 32 << 20
	// entryOverhead is about what a line costs beyond its own bytes.
	entryOverhead = 512
)

// errInterrupted is why reading stopped before the end.
var errInterrupted = errors.New("interrupted")

// loaderConfig configures a loader.
type loaderConfig struct {
	// Decoder turns lines into requests.
	Decoder lineDecoder
	// Batch is the most requests in one call of Write.
	Batch int
	// Strict stops at the first bad line, and writes nothing behind it.
	Strict bool
	// Write stores requests; one result for each, in order. It is called from
	// several goroutines.
	Write func(ctx context.Context, requests []producer.Request) []producer.Result
	// Bad is told of every bad line; one call at a time.
	Bad func(line int, err error)
	// Progress is told of bytes that are done with, written or refused. It is
	// called from several goroutines.
	Progress func(bytes int)
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
}

// loader writes a stream of NDJSON lines as tasks. Reading and decoding is one
// goroutine; it deals the lines out to lanes by a hash of their ID.
type loader struct {
	cfg    loaderConfig
	budget *semaphore.Weighted
	lanes  [lanes]*lane
	seed   maphash.Seed
	count  struct{ lines, scheduled, existing, bad atomic.Int64 }

	// halt ends reading.
	halt context.CancelFunc

	mu sync.Mutex
	// failure ended the load before everything read was written.
	failure error
}

func newLoader(cfg loaderConfig) *loader {
	l := &loader{cfg: cfg, budget: semaphore.NewWeighted(memoryBudget), seed: maphash.MakeSeed()}
	for i := range l.lanes {
		l.lanes[i] = &lane{loader: l, in: make(chan entry, cfg.Batch)}
	}
	return l
}

// load reads r to its end, to a reason to stop, or until ctx is cancelled; what
// was read before a cancellation is still written. The error says why not all
// lines are in, and the summary holds either way.
func (l *loader) load(ctx context.Context, r io.Reader) (summary, error) {
	start := time.Now()
	reading, halt := context.WithCancel(ctx)
	defer halt()
	l.halt = halt

	var running sync.WaitGroup
	for _, lane := range l.lanes {
		running.Go(func() { lane.run(context.WithoutCancel(ctx)) })
	}
	lines := newLineReader(interruptible(reading, r), maxLine(l.cfg.Decoder.maxPayload))
	err := l.read(reading, lines)
	for _, lane := range l.lanes {
		close(lane.in)
	}
	running.Wait()

	sum := l.summary(lines.number, time.Since(start))
	return sum, l.outcome(err, sum)
}

// read deals the lines out until there are no more, or ctx is done, whether the
// user asked for that or a bad line or a failure did: outcome tells them apart.
// Every line it has taken is dealt out or refused, never dropped.
func (l *loader) read(ctx context.Context, lines *lineReader) error {
	for ctx.Err() == nil {
		line, err := lines.next()
		var tooLong *tooLongError
		switch {
		case errors.As(err, &tooLong):
			l.refuse(lines.number, err)
			l.cfg.Progress(lines.size)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			if ctx.Err() != nil {
				return errInterrupted
			}
			return fmt.Errorf("read line %d: %w", lines.number+1, err)
		case len(bytes.TrimSpace(line)) == 0:
			l.cfg.Progress(lines.size)
			continue
		default:
			l.deal(line, lines)
		}
		l.count.lines.Add(1)
	}
	return errInterrupted
}

// deal decodes one line and hands it to its ID's lane.
func (l *loader) deal(line []byte, lines *lineReader) {
	req, err := l.cfg.Decoder.decode(line)
	if err != nil {
		l.refuse(lines.number, err)
		l.cfg.Progress(lines.size)
		return
	}
	e := entry{line: lines.number, size: lines.size, req: req}
	e.weight = min(int64(lines.size)+entryOverhead, memoryBudget)
	// The lanes give back what they took without ever waiting for a line, so
	// this waits for Redis at most.
	_ = l.budget.Acquire(context.Background(), e.weight)
	l.lanes[maphash.String(l.seed, req.ID)%lanes].in <- e
}

// release gives a batch's share of the budget back.
func (l *loader) release(batch []entry) {
	for _, e := range batch {
		l.budget.Release(e.weight)
		l.cfg.Progress(e.size)
	}
}

// refuse reports a bad line, and ends a strict load with it.
func (l *loader) refuse(line int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count.bad.Add(1)
	l.cfg.Bad(line, err)
	if l.cfg.Strict {
		l.halt()
	}
}

// fail ends the load: reading stops, and no lane begins another batch.
func (l *loader) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
	}
	l.halt()
}

func (l *loader) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure != nil
}

// summary counts up when all lanes have ended; read is the last line's number.
func (l *loader) summary(read int, took time.Duration) summary {
	s := summary{
		Lines:     l.count.lines.Load(),
		Scheduled: l.count.scheduled.Load(),
		Existing:  l.count.existing.Load(),
		Bad:       l.count.bad.Load(),
		SafeLine:  read,
		Seconds:   math.Round(took.Seconds()*1000) / 1000,
	}
	s.Unwritten = s.Lines - s.Scheduled - s.Existing - s.Bad
	s.Rate = math.Round(float64(s.Scheduled) / max(took.Seconds(), 1e-6))
	for _, lane := range l.lanes {
		if lane.lost != 0 {
			s.SafeLine = min(s.SafeLine, lane.lost-1)
		}
	}
	return s
}

// outcome turns the end of a load into its error: the gravest reason first.
func (l *loader) outcome(read error, s summary) error {
	switch {
	case l.failure != nil:
		return fmt.Errorf("stopped; every good line up to line %d is in: %w", s.SafeLine, l.failure)
	case s.Bad > 0 && l.cfg.Strict:
		return fmt.Errorf("stopped at the bad line; nothing after it is in (--strict)")
	case read != nil:
		return fmt.Errorf("stopped after line %d, and every good line up to it is in: %w", s.SafeLine, read)
	case s.Bad > 0:
		return fmt.Errorf("%d of %d lines are bad and were not written; mend those and load them again", s.Bad, s.Lines)
	default:
		return nil
	}
}

// interruptible returns r's bytes until ctx is done, even while r blocks in
// Read, as a terminal or a pipe does. The goroutine that is left in that Read
// ends with the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}
