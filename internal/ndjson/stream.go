package ndjson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// MemoryBudget limits the memory of all requests in flight, in bytes.
	MemoryBudget = 32 << 20
	// requestOverhead is the approximate memory of a request besides its line, in bytes.
	requestOverhead = 512
	// MaxBatch is the most tasks of one call, the same as of one claim.
	MaxBatch = 1000
	// maxBatchBytes limits the size of a batch, so that a call with large payloads doesn't
	// delay other clients of Redis.
	maxBatchBytes = 4 << 20
	// gatherTime is how long a batch waits for lines that are on their way.
	gatherTime = 2 * time.Millisecond
)

// BadLineError says why a line holds no valid request.
type BadLineError struct {
	// Field is the name of the field that is wrong, or "line" if the line itself is.
	Field string
	// Rule says what is wrong with it.
	Rule string
	// Got is the value's size if the rule is about a size, else mostly "". It isn't secret.
	Got string

	text string
}

func (e BadLineError) Error() string { return e.text }

// badLine returns the error of a line for which err says what is wrong.
func badLine(err error) BadLineError {
	e := BadLineError{Field: "line", Rule: err.Error(), text: err.Error()}
	if broken, is := errors.AsType[*task.RuleError](err); is {
		e.Field, e.Rule, e.Got = broken.Field, broken.Rule, broken.Got
	} else if wrong, is := errors.AsType[*FieldError](err); is {
		e.Field, e.Rule = wrong.Field, wrong.Err.Error()
	}
	return e
}

// ErrInterrupted is the error of reading that a signal stopped.
var ErrInterrupted = errors.New("interrupted")

// Request is a request to schedule a task, or to do something else with one.
type Request struct {
	producer.Request
	// Verb is schedule, reschedule, cancel or get.
	Verb string

	// Line is the line's number in the stream, from 1. End is the offset in bytes at which
	// it ends. Both are 0 outside a stream.
	Line, End int
	// Answer and Err are the result, as given to Reply.
	Answer any
	Err    error

	weight int64       // share of the memory budget, in bytes
	done   atomic.Bool // its batch is done
}

// Reply sets the result of a request.
func (r *Request) Reply(answer any, err error) {
	r.Answer, r.Err = answer, err
}

// Stream does requests that come one per line.
//
// One goroutine reads the requests. It puts each into a queue, and into one of several
// batchers, which it chooses by a hash of topic and ID. A batcher gets its requests when no
// whole line is left to be read, so that batches are large and no request waits for input. It
// sends them in their order, one batch at a time. So a later request for a task never reaches
// Redis before an earlier one. Another goroutine passes the requests to Finished in the order of
// the queue, each when it is done.
type Stream struct {
	// Parse parses a line. With an error the request holds the parts that it could parse.
	Parse func(line []byte) (*Request, error)
	// Do does a batch, and replies once to each of its requests before it returns. It is called
	// from several goroutines.
	Do func(ctx context.Context, batch []*Request)
	// Finished receives the requests in order. Idle is called when the next one isn't done.
	Finished func(r *Request)
	Idle     func()

	MaxPayload int      // in bytes.
	Together   []string // the verbs whose requests are sent in batches of one verb.
	Batchers   int      // number of batchers: how many calls to Redis are in flight at most.
	Batch      int      // the most tasks of one call.
	Ahead      int      // how many requests are read before the first of them is done, at most.
	Strict     bool     // stop after a bad line.
	// Coming says that the whole input is on its way, and waits for no answer. Then requests wait
	// for the next ones, up to gatherTime for each batch, so that batches are large.
	Coming bool

	budget   *semaphore.Weighted
	lines    *lineReader
	queue    chan *Request
	some     wake.Signal // requests are done
	batchers []chan []*Request
	pending  [][]*Request // read, by batcher
}

// Read returns how many lines were read, blank ones too.
func (s *Stream) Read() int { return s.lines.number }

// Run reads requests until the end of in or of ctx. It returns when all requests that it
// has read are done and passed to Finished. Reading from in must fail soon after the end of
// ctx, see Interruptible.
func (s *Stream) Run(ctx context.Context, in io.Reader) error {
	s.budget = semaphore.NewWeighted(MemoryBudget)
	s.lines = newLineReader(in, maxLine(s.MaxPayload))
	s.queue, s.some = make(chan *Request, s.Ahead), wake.NewSignal()
	s.batchers = make([]chan []*Request, s.Batchers)
	s.pending = make([][]*Request, s.Batchers)
	var running sync.WaitGroup
	for i := range s.batchers {
		s.batchers[i] = make(chan []*Request, s.Ahead)
		running.Go(func() { s.work(context.WithoutCancel(ctx), s.batchers[i]) })
	}
	running.Go(s.finish)
	err := s.read(ctx)
	s.pass()
	close(s.queue)
	for _, batcher := range s.batchers {
		close(batcher)
	}
	running.Wait()
	return err
}

// pass gives the batchers what was read for them.
func (s *Stream) pass() {
	for i, requests := range s.pending {
		if len(requests) > 0 {
			s.batchers[i] <- requests
			s.pending[i] = nil
		}
	}
}

// read distributes requests until the end of the input or of ctx. Every line except blank
// ones goes into the queue; good lines also go to a batcher.
func (s *Stream) read(ctx context.Context) error {
	seed := maphash.MakeSeed()
	for ctx.Err() == nil {
		if !s.lines.ready() {
			s.pass()
		}
		line, err := s.lines.next()
		switch {
		case errors.Is(err, task.ErrInvalid): // too long: refused below like other bad lines
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return ErrInterrupted
		case err != nil:
			return fmt.Errorf("read line %d: %w", s.lines.number+1, err)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		r, err := s.request(line, err)
		select {
		case s.queue <- r:
		default: // it is full of requests that a batcher must have
			s.pass()
			s.queue <- r
		}
		if err == nil {
			at := maphash.Comparable(seed, [2]string{r.Topic, r.ID}) % uint64(s.Batchers) //nolint:gosec // above 0
			s.pending[at] = append(s.pending[at], r)
			continue
		}
		r.Reply(nil, err)
		if s.done(r); s.Strict {
			return nil
		}
	}
	return ErrInterrupted
}

// request makes a request of a line, or of the error of reading the line. It waits until
// the memory budget has room for the request.
func (s *Stream) request(line []byte, wrong error) (*Request, error) {
	var r *Request
	if wrong == nil {
		r, wrong = s.Parse(line)
	} else {
		r = &Request{}
	}
	r.Line, r.End = s.lines.number, s.lines.end
	r.weight = int64(len(line)) + requestOverhead
	if r.Verb == "get" {
		r.weight += int64(s.MaxPayload) // of the answer
	}
	r.weight = min(r.weight, MemoryBudget)
	if !s.budget.TryAcquire(r.weight) {
		// This can't block forever: earlier requests release their share when they are done,
		// and they never wait for this one.
		s.pass()
		_ = s.budget.Acquire(context.Background(), r.weight)
	}
	if wrong != nil {
		wrong = badLine(wrong)
	}
	return r, wrong
}

// work does the requests of one batcher in their order.
func (s *Stream) work(ctx context.Context, batcher <-chan []*Request) {
	for waiting := range batcher {
		for len(waiting) > 0 {
			if s.Coming {
				waiting = s.gather(batcher, waiting)
			}
			n := s.batch(waiting)
			s.Do(ctx, waiting[:n])
			s.done(waiting[:n]...)
			waiting = waiting[n:]
			select {
			case more := <-batcher: // they came meanwhile, so they can be in the next batch
				waiting = append(slices.Clip(waiting), more...)
			default:
			}
		}
	}
}

// gather adds requests that come soon, up to a batch.
func (s *Stream) gather(batcher <-chan []*Request, waiting []*Request) []*Request {
	late := time.NewTimer(gatherTime)
	defer late.Stop()
	for len(waiting) < s.Batch {
		select {
		case more, open := <-batcher:
			if !open {
				return waiting
			}
			waiting = append(slices.Clip(waiting), more...)
		case <-late.C:
			return waiting
		}
	}
	return waiting
}

// done lets finish go on with requests that have an answer.
func (s *Stream) done(requests ...*Request) {
	for _, r := range requests {
		r.done.Store(true)
	}
	s.some.Send()
}

// batch returns how many of the first requests make a batch. It ends at the limits of one call,
// or at a request with another verb. A request with a verb that isn't in s.Together is a batch
// by itself.
func (s *Stream) batch(requests []*Request) int {
	n, verb, bytes := 1, requests[0].Verb, requests[0].weight
	if !slices.Contains(s.Together, verb) {
		return n
	}
	for n < min(len(requests), s.Batch) && requests[n].Verb == verb && bytes < maxBatchBytes {
		bytes += requests[n].weight
		n++
	}
	return n
}

// finish passes requests to s.Finished in their order, and releases their memory.
func (s *Stream) finish() {
	for r := range s.queue {
		if !r.done.Load() {
			s.Idle()
		}
		for !r.done.Load() {
			<-s.some
		}
		s.Finished(r)
		s.budget.Release(r.weight)
		if len(s.queue) == 0 {
			s.Idle()
		}
	}
}

// Tasks returns the requests of a batch for the producer library.
func Tasks(batch []*Request) []producer.Request {
	requests := make([]producer.Request, len(batch))
	for i, r := range batch {
		requests[i] = r.Request
	}
	return requests
}

// Interruptible returns a reader of the bytes of r. It fails when ctx is done, even while
// r blocks, as a terminal or a pipe does. A goroutine that blocks in r.Read then stays
// until the process ends.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

// maxLine returns the length in bytes of the longest line that can hold a valid task. Such
// a line has every byte of text as a \u escape of six bytes, and the names of the fields. 12 KiB
// are for these names, the message's options, the rule and the series. Or it has the longest
// message of an intake, as AppendLine writes it.
func maxLine(maxPayload int) int {
	return 6*(maxPayload+task.MaxID) + max(6*(task.MaxContentType+task.MaxHeaderBytes), amqpmsg.MaxJSON) + 12<<10
}

// lineReader reads lines in constant memory. It returns its own buffer, which holds one
// line at a time.
type lineReader struct {
	source *bufio.Reader
	limit  int
	buf    []byte
	// number is the number, from 1, of the line that next returned last. End is the offset
	// in bytes at which that line ends.
	number, end int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{source: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// ready reports whether a whole line was read ahead.
func (l *lineReader) ready() bool {
	ahead, _ := l.source.Peek(l.source.Buffered())
	return bytes.IndexByte(ahead, '\n') >= 0
}

// Some editors and spreadsheets write byteOrderMark in front of UTF-8.
const byteOrderMark = "\ufeff"

// next returns a line without its line end, and the first line without a byte order mark. The
// line is valid until the next call. The last line needs no line end. Errors are io.EOF, an error of the reader, or a
// *task.RuleError for a line longer than the limit, which next has skipped.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for size := 0; ; {
		part, err := l.source.ReadSlice('\n')
		if size += len(part); size <= l.limit {
			l.buf = append(l.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || size == 0) {
			return nil, err
		}
		l.number, l.end = l.number+1, l.end+size
		if size > l.limit {
			rule := fmt.Sprintf("must be at most %d bytes (it follows from max_payload)", l.limit)
			return nil, &task.RuleError{Field: "line", Rule: rule, Got: fmt.Sprintf("%d bytes", size)}
		}
		line := bytes.TrimRight(l.buf, "\r\n")
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		return line, nil
	}
}
