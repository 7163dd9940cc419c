package shard

import (
	"context"
	"fmt"
	"time"
)

// The past of an ID is what consumers and producers tell each other of a task
// whose record may be gone: what was handled, which delivery follows which, and
// that it was cancelled. It lies in a slot of its own, whatever the shard count,
// and expires. Only consumers that remember make one for each task; a producer
// makes one when it changes a task that may have been delivered.

// pastKeep is how long a producer's note stays: longer than a message is expected
// to wait in a queue.
const pastKeep = 24 * time.Hour

func (t *Topic) pastKeys(id string) []string {
	return []string{t.prefix + ":past:{" + t.name + ":" + id + "}"}
}

// Standing is what is to be done with a delivery.
type Standing string

const (
	// Run it.
	Run Standing = "run"
	// Done it was already.
	Done Standing = "done"
	// Over is its chain: the producer has cancelled or replaced the task since.
	Over Standing = "over"
)

// Delivered names one delivery of a task by its times, in ms.
type Delivered struct {
	ID             string
	Due, Scheduled int64
}

// Recall asks what is to be done with a delivery. With a window it is remembered
// for that long that a handler has it; with 0 nothing is.
func (t *Topic) Recall(ctx context.Context, d Delivered, window time.Duration) (Standing, error) {
	args := []any{d.Due, d.Scheduled, oneIf(window > 0), window.Milliseconds()}
	text, err := t.run(ctx, call{script: "recall", keys: t.pastKeys(d.ID), args: args}).Text()
	return Standing(text), wrapIf(err, "look up the past of task %q of topic %s", d.ID, t.name)
}

// Done notes for the window that the delivery of that due time was done with.
func (t *Topic) Done(ctx context.Context, id string, due int64, window time.Duration) error {
	err := t.run(ctx, call{script: "done", keys: t.pastKeys(id), args: []any{due, window.Milliseconds()}}).Err()
	return wrapIf(err, "remember task %q of topic %s", id, t.name)
}

// Follow asks whether a delivery may be followed by another of the same task, due
// at next in ms (0: by parking it), and returns when; not if its chain is over.
func (t *Topic) Follow(ctx context.Context, d Delivered, next int64, window time.Duration) (at int64, ok bool, err error) {
	var when any = next
	if next == 0 {
		when = ""
	}
	args := []any{d.Due, d.Scheduled, when, window.Milliseconds()}
	reply, err := t.run(ctx, call{script: "follow", keys: t.pastKeys(d.ID), args: args}).Slice()
	if err != nil {
		return 0, false, fmt.Errorf("look up the past of task %q of topic %s: %w", d.ID, t.name, err)
	}
	if len(reply) < 2 {
		return 0, false, nil
	}
	at, _ = reply[1].(int64)
	return at, true, nil
}

// noteCancelled tells consumers that the task was cancelled, at a ms by the clock
// of its shard.
func (t *Topic) noteCancelled(ctx context.Context, id string, at int64) error {
	err := t.run(ctx, t.written(id, at, "")).Err()
	return wrapIf(err, "note the cancel of task %q of topic %s", id, t.name)
}

// noteMoved tells consumers that the producer asked, at a ms, to move the task to
// another.
func (t *Topic) noteMoved(ctx context.Context, id string, at, due int64) error {
	err := t.run(ctx, t.written(id, at, due)).Err()
	return wrapIf(err, "note the move of task %q of topic %s", id, t.name)
}

func (t *Topic) note(id string, at, due any) call {
	return call{script: "note", keys: t.pastKeys(id), args: []any{at, due, pastKeep.Milliseconds()}}
}

// written is a note that writes, which replicas are to have: on a Redis Cluster they are
// not those of the task's shard.
func (t *Topic) written(id string, at, due any) call {
	c := t.note(id, at, due)
	c.fence = c.keys[0]
	return c
}
