package main

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// linger is how long a batch waits for more lines after its first one:
	// long enough to fill batches at full speed, and a fraction of the 50 ms
	// within which what a pipe brought is to be written.
	linger = 10 * time.Millisecond
	// maxBatchBytes ends a batch early, so that large payloads do not make one
	// call to Redis that holds up everybody else's.
	maxBatchBytes = 4 << 20
)

// entry is a good line on its way to Redis.
type entry struct {
	line int
	// size is what the line took of its file, and weight what it takes of the
	// loader's memory budget, both in bytes.
	size   int
	weight int64
	req    producer.Request
}

// lane writes its share of the lines, one batch at a time and in the order they
// came. All lines of one ID go down the same lane, so a later line of an ID
// never reaches Redis before an earlier one.
type lane struct {
	loader *loader
	in     chan entry
	// lost is the first line of this lane that is not known to be in Redis; 0
	// if there is none. Read it when run has returned.
	lost int
}

// run writes batches until in is closed. Once the load has failed it goes on
// taking entries, so that nobody waits for it, and writes none of them.
func (l *lane) run(ctx context.Context) {
	for {
		batch := l.collect()
		if len(batch) == 0 {
			return
		}
		if l.loader.failed() {
			l.lose(batch[0].line)
		} else {
			l.write(ctx, batch)
		}
		l.loader.release(batch)
	}
}

// collect waits for an entry, and then for as many more as arrive within the
// linger and fit into a batch. It returns none when in is closed and empty.
func (l *lane) collect() []entry {
	first, open := <-l.in
	if !open {
		return nil
	}
	batch, bytes := []entry{first}, first.size
	timeout := time.NewTimer(linger)
	defer timeout.Stop()
	for len(batch) < l.loader.cfg.Batch && bytes < maxBatchBytes {
		select {
		case e, open := <-l.in:
			if !open {
				return batch
			}
			batch, bytes = append(batch, e), bytes+e.size
		case <-timeout.C:
			return batch
		}
	}
	return batch
}

// write stores one batch and accounts for every line of it.
func (l *lane) write(ctx context.Context, batch []entry) {
	requests := make([]producer.Request, len(batch))
	for i, e := range batch {
		requests[i] = e.req
	}
	for i, result := range l.loader.cfg.Write(ctx, requests) {
		switch e := batch[i]; {
		case result.Err == nil:
			l.loader.count.scheduled.Add(1)
		case errors.Is(result.Err, task.ErrExists):
			l.loader.count.existing.Add(1)
		case errors.Is(result.Err, task.ErrInvalid):
			l.loader.refuse(e.line, result.Err)
		default:
			l.lose(e.line)
			l.loader.fail(result.Err)
		}
	}
}

func (l *lane) lose(line int) {
	if l.lost == 0 {
		l.lost = line
	}
}
