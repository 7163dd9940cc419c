package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// memoryBudget bounds what the requests that are on their way hold, in bytes,
	// whatever their number and size.
	memoryBudget = 32 << 20
	// requestOverhead is about what a request costs beyond its line's own bytes.
	requestOverhead = 512
	// maxBatch is the most tasks of one call, as of one claim.
	maxBatch = 1000
	// maxBatchBytes ends a batch early, so that large payloads do not make one
	// call to Redis that holds up everybody else's.
	maxBatchBytes = 4 << 20
)

// errInterrupted is why reading stopped before the end.
var errInterrupted = errors.New("interrupted")

// stream does requests that come a line each. One goroutine reads them, in their
// order into a queue and by a hash of their task's name into lanes. A lane does its
// own one batch at a time and in the order they came, so a later request for a task
// never reaches Redis before an earlier one. One goroutine hands them on in the
// queue's order, each when it is done.
type stream struct {
	// parse reads a line. With an error the request holds what was understood.
	parse func(line []byte) (*request, error)
	// do does a batch, and replies to each request of it. It is called from several
	// goroutines.
	do func(ctx context.Context, batch []*request)
	// finished is handed the requests, and idle called when the next one isn't done.
	finished func(r *request)
	idle     func()

	maxPayload int    // in bytes
	together   string // the verb whose requests go out together
	lanes      int    // how many calls to Redis are on their way at most
	batch      int    // the most tasks of one call
	ahead      int    // how many requests are read before the first of them is done, at most
	strict     bool   // a line that is wrong is the last one

	budget *semaphore.Weighted
	lines  *lineReader
}

// run reads requests until there are no more, or ctx is cancelled, and returns when
// all that were read are done and handed on.
func (s *stream) run(ctx context.Context, in io.Reader) error {
	s.budget = semaphore.NewWeighted(memoryBudget)
	s.lines = newLineReader(interruptible(ctx, in), maxLine(s.maxPayload))
	queue, lanes := make(chan *request, s.ahead), make([]chan *request, s.lanes)
	var running sync.WaitGroup
	for i := range lanes {
		lanes[i] = make(chan *request, s.ahead)
		running.Go(func() { s.work(context.WithoutCancel(ctx), lanes[i]) })
	}
	running.Go(func() { s.finish(queue) })
	err := s.read(ctx, queue, lanes)
	close(queue)
	for _, lane := range lanes {
		close(lane)
	}
	running.Wait()
	return err
}

// read deals requests out until there are no more, or ctx is done. Each line that it
// took, blank ones aside, is in the queue; in a lane as well unless it is wrong.
func (s *stream) read(ctx context.Context, queue chan<- *request, lanes []chan *request) error {
	seed := maphash.MakeSeed()
	for ctx.Err() == nil {
		line, err := s.lines.next()
		switch {
		case errors.Is(err, task.ErrInvalid): // too long: it is refused as other wrong ones
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return fmt.Errorf("read line %d: %w", s.lines.number+1, err)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		r, err := s.request(line, err)
		queue <- r
		if err == nil {
			lanes[maphash.Comparable(seed, [2]string{r.Topic, r.ID})%uint64(len(lanes))] <- r
		} else if r.reply(nil, err); s.strict {
			return nil
		}
	}
	return errInterrupted
}

// request makes one of a line, or of the error in its place, when the memory budget
// has room for it.
func (s *stream) request(line []byte, wrong error) (*request, error) {
	r := &request{}
	if wrong == nil {
		r, wrong = s.parse(line)
	}
	r.line, r.end, r.done = s.lines.number, s.lines.end, make(chan struct{})
	r.weight = int64(len(line)) + requestOverhead
	if r.verb == "get" {
		r.weight += int64(s.maxPayload) // the answer's
	}
	r.weight = min(r.weight, memoryBudget)
	// Those in front give back what they took when they are done, without ever
	// waiting for this one.
	_ = s.budget.Acquire(context.Background(), r.weight)
	if wrong != nil {
		wrong = cli.UsageError(wrong.Error())
	}
	return r, wrong
}

// work does a lane's requests in their order. Those of one verb that wait one behind the
// other go out together.
func (s *stream) work(ctx context.Context, lane <-chan *request) {
	for first := <-lane; first != nil; {
		batch, next := s.gather(first, lane)
		s.do(ctx, batch)
		if first = next; first == nil {
			first = <-lane
		}
	}
}

// gather takes what waits of the verb whose requests go out together, up to what one call
// takes, and the first request that is something else.
func (s *stream) gather(first *request, lane <-chan *request) (batch []*request, other *request) {
	batch = []*request{first}
	if first.verb != s.together {
		return batch, nil
	}
	for bytes := first.weight; len(batch) < s.batch && bytes < maxBatchBytes; {
		select {
		case r := <-lane:
			if r == nil || r.verb != s.together {
				return batch, r
			}
			batch, bytes = append(batch, r), bytes+r.weight
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// finish hands requests on in their order, and gives back what they took.
func (s *stream) finish(queue <-chan *request) {
	for r := range queue {
		select {
		case <-r.done:
		default:
			s.idle()
			<-r.done
		}
		s.finished(r)
		s.budget.Release(r.weight)
		if len(queue) == 0 {
			s.idle()
		}
	}
}

// requestsOf are the library's.
func requestsOf(batch []*request) []producer.Request {
	requests := make([]producer.Request, len(batch))
	for i, r := range batch {
		requests[i] = r.Request
	}
	return requests
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

// maxLine is the longest line, in bytes, that can hold a valid task: every byte
// of its text as a six byte \u escape, and room for the fields' names.
func maxLine(maxPayload int) int {
	return 6*(maxPayload+task.MaxID+task.MaxContentType+task.MaxHeaderBytes) + 4<<10
}

// lineReader reads lines in constant memory: the buffer it returns is its own
// and holds one line at a time.
type lineReader struct {
	source *bufio.Reader
	limit  int
	buf    []byte
	// number of the line next returned last, from 1, and where it ends, in bytes.
	number, end int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{source: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns a line without its end, valid until the next call. A last line
// needs no end. The errors: a *task.RuleError for a line beyond the limit, which was
// read over to its end; io.EOF, or the reader's own.
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
		return bytes.TrimRight(l.buf, "\r\n"), nil
	}
}
