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
)

const (
	// pipeLanes is how many calls to Redis are on their way at most.
	pipeLanes = 16
	// pipeAhead is how many requests are read before the first of them is
	// answered, at most.
	pipeAhead = 1000
)

// piping answers a stream of requests. One goroutine reads them, in their order
// into a queue and by a hash of their task's name into lanes; each lane does its
// own one after the other; one goroutine writes the answers in the queue's order.
type piping struct {
	client     *producer.Client
	topic      string
	maxPayload int
	seed       maphash.Seed
	budget     *semaphore.Weighted
	queue      chan *request
	lanes      [pipeLanes]chan *request
}

func newPiping(client *producer.Client, topic string, maxPayload int) *piping {
	p := &piping{
		client: client, topic: topic, maxPayload: maxPayload, seed: maphash.MakeSeed(),
		budget: semaphore.NewWeighted(memoryBudget), queue: make(chan *request, pipeAhead),
	}
	for i := range p.lanes {
		p.lanes[i] = make(chan *request, pipeAhead)
	}
	return p
}

// run reads requests until there are no more, or ctx is cancelled, and returns
// when all that were read are answered.
func (p *piping) run(ctx context.Context, in io.Reader, out io.Writer) error {
	reading, halt := context.WithCancel(ctx)
	defer halt()
	var running sync.WaitGroup
	for _, lane := range p.lanes {
		running.Go(func() { p.work(context.WithoutCancel(ctx), lane) })
	}
	var written error
	running.Go(func() { written = p.write(out, halt) })
	lines := newLineReader(interruptible(reading, in), maxLine(p.maxPayload))
	err := p.read(reading, lines)
	close(p.queue)
	for _, lane := range p.lanes {
		close(lane)
	}
	running.Wait()
	if written != nil {
		return fmt.Errorf("write an answer: %w", written)
	}
	return err
}

// read takes requests until there are no more, or ctx is done. Each line that it
// took, blank ones aside, is answered.
func (p *piping) read(ctx context.Context, lines *lineReader) error {
	for ctx.Err() == nil {
		line, err := lines.next()
		var tooLong *tooLongError
		switch {
		case errors.As(err, &tooLong):
			p.take(&request{done: make(chan struct{})}, lines, cli.UsageError(err.Error()))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("read line %d: %w", lines.number+1, err)
		case err != nil, len(bytes.TrimSpace(line)) == 0:
		default:
			r, err := parseRequest(line, p.topic)
			p.take(r, lines, err)
		}
	}
	return errInterrupted
}

// take gives a request its place in the order of answers, and to its lane unless
// it is wrong.
func (p *piping) take(r *request, lines *lineReader, wrong error) {
	r.line, r.size = lines.number, lines.size
	r.weight = int64(r.size) + entryOverhead
	if r.verb == "get" {
		r.weight += int64(p.maxPayload) // the answer's
	}
	r.weight = min(r.weight, memoryBudget)
	// Those in front give back what they took when they are answered, without
	// ever waiting for this one.
	_ = p.budget.Acquire(context.Background(), r.weight)
	p.queue <- r
	if wrong != nil {
		r.refuse(wrong)
		return
	}
	p.lanes[maphash.Comparable(p.seed, r.named())%pipeLanes] <- r
}

// write writes answers in the order of their requests, each as soon as it can:
// what is written is held back only while the next answer is there. If nobody
// hears them any more it has reading halted, and waits for what was read.
func (p *piping) write(out io.Writer, halt func()) (failed error) {
	w := bufio.NewWriterSize(out, 64<<10) // keeps its first error
	for r := range p.queue {
		select {
		case <-r.done:
		default:
			_ = w.Flush() // or the next one says so
			<-r.done
		}
		err := cli.PrintJSON(w, r.answer, "")
		if len(p.queue) == 0 {
			err = errors.Join(err, w.Flush())
		}
		if err != nil {
			failed = err
			halt()
		}
		p.budget.Release(r.weight)
	}
	return failed
}

// work does a lane's requests in their order. Tasks to be scheduled that wait one
// behind the other go out together.
func (p *piping) work(ctx context.Context, lane <-chan *request) {
	var next *request
	for {
		r := next
		if next = nil; r == nil {
			if r = <-lane; r == nil {
				return
			}
		}
		if r.verb != "schedule" {
			p.do(ctx, r)
			continue
		}
		var batch []*request
		batch, next = gather(r, lane)
		p.schedule(ctx, batch)
	}
}

// gather takes what waits to be scheduled, up to what one call takes, and the
// first request that is something else.
func gather(first *request, lane <-chan *request) (batch []*request, other *request) {
	batch = []*request{first}
	for bytes := first.size; len(batch) < maxBatch && bytes < maxBatchBytes; {
		select {
		case r := <-lane:
			if r == nil || r.verb != "schedule" {
				return batch, r
			}
			batch, bytes = append(batch, r), bytes+r.size
		default:
			return batch, nil
		}
	}
	return batch, nil
}

func (p *piping) schedule(ctx context.Context, batch []*request) {
	requests := make([]producer.Request, len(batch))
	for i, r := range batch {
		requests[i] = r.Request
	}
	for i, result := range p.client.ScheduleMany(ctx, requests) {
		r := batch[i]
		if result.Err != nil {
			r.refuse(fmt.Errorf("schedule: %w", result.Err))
			continue
		}
		r.reply(struct {
			answerHead
			dueOutput
		}{r.head(), newDueOutput(r.named(), result.Due)})
	}
}

// do is every verb but schedule.
func (p *piping) do(ctx context.Context, r *request) {
	answer, err := p.call(ctx, r)
	if err != nil {
		r.refuse(fmt.Errorf("%s: %w", r.verb, err))
		return
	}
	r.reply(answer)
}

func (p *piping) call(ctx context.Context, r *request) (answer any, err error) {
	switch r.verb {
	case "cancel":
		return struct {
			answerHead
			cancelOutput
		}{r.head(), cancelOutput{r.named(), true}}, p.client.Cancel(ctx, r.Topic, r.ID)
	case "reschedule":
		due, err := p.client.Reschedule(ctx, r.Topic, r.ID, r.When)
		return struct {
			answerHead
			dueOutput
		}{r.head(), newDueOutput(r.named(), due)}, err
	default:
		stored, err := p.client.Get(ctx, r.Topic, r.ID)
		return struct {
			answerHead
			getOutput
		}{r.head(), newGetOutput(r.named(), stored)}, err
	}
}
