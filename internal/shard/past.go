package shard

import (
	"context"
	"fmt"
	"time"
)

// The past of an ID is its delivery history: what consumers and producers tell each
// other about a task whose record may be gone. It says which deliveries were handled,
// which delivery follows which, and whether the task was cancelled. It has a slot of its
// own, whatever the shard count, and expires. Only consumers that remember deliveries
// write one for each task. A producer writes one when it changes a task that may have
// been delivered. See docs/adr/0008.

// historyKeep is how long a producer's note stays: longer than a message is expected to wait
// in a queue.
const historyKeep = 24 * time.Hour

func (t *Topic) historyKeys(id string) []string {
	return []string{t.prefix + ":past:{" + t.name + ":" + id + "}"}
}

// Disposition is the disposition of a delivery: whether its consumer handles it.
type Disposition string

const (
	// Run: handle it.
	Run Disposition = "run"
	// Done: it was handled already.
	Done Disposition = "done"
	// Over: its chain is superseded, since the producer has cancelled or replaced the
	// task.
	Over Disposition = "over"
)

// Delivered identifies one delivery of a task by its times, in ms.
type Delivered struct {
	ID             string
	Due, Scheduled int64
}

// CheckDelivery returns the disposition of a delivery. With a window, it also remembers for that
// long that a handler has the delivery; with 0 it writes nothing.
func (t *Topic) CheckDelivery(ctx context.Context, d Delivered, window time.Duration) (Disposition, error) {
	args := []any{d.Due, d.Scheduled, oneIf(window > 0), window.Milliseconds()}
	text, err := t.run(ctx, call{script: "recall", keys: t.historyKeys(d.ID), args: args}).Text()
	return Disposition(text), wrapIf(err, "look up the delivery history of task %q of topic %s", d.ID, t.name)
}

// Done remembers, for the window, that the delivery of that due time was handled.
func (t *Topic) Done(ctx context.Context, id string, due int64, window time.Duration) error {
	err := t.run(ctx, call{script: "done", keys: t.historyKeys(id), args: []any{due, window.Milliseconds()}}).Err()
	return wrapIf(err, "remember task %q of topic %s", id, t.name)
}

// AllowNext asks whether a delivery may be followed by another one of the same task, due at
// next in ms (0: by parking it). It returns when that one is due, since the producer may
// have requested another time; ok is false if the chain is superseded.
func (t *Topic) AllowNext(ctx context.Context, d Delivered, next int64, window time.Duration) (at int64, ok bool,
	err error) {
	var when any = next
	if next == 0 {
		when = ""
	}
	args := []any{d.Due, d.Scheduled, when, window.Milliseconds()}
	reply, err := t.run(ctx, call{script: "follow", keys: t.historyKeys(d.ID), args: args}).Slice()
	if err != nil {
		return 0, false, fmt.Errorf("look up the delivery history of task %q of topic %s: %w", d.ID, t.name, err)
	}
	if len(reply) < 2 {
		return 0, false, nil
	}
	at, _ = reply[1].(int64)
	return at, true, nil
}

// noteCancelled notes for consumers that the task was cancelled at a time in ms, by the
// clock of its shard.
func (t *Topic) noteCancelled(ctx context.Context, id string, at int64) error {
	err := t.run(ctx, t.written(id, at, "")).Err()
	return wrapIf(err, "note the cancellation of task %q of topic %s", id, t.name)
}

// noteMoved notes for consumers that the producer asked, at a time in ms, to move the
// task to due, in ms.
func (t *Topic) noteMoved(ctx context.Context, id string, at, due int64) error {
	err := t.run(ctx, t.written(id, at, due)).Err()
	return wrapIf(err, "note the move of task %q of topic %s", id, t.name)
}

func (t *Topic) note(id string, at, due any) call {
	return call{script: "note", keys: t.historyKeys(id), args: []any{at, due, historyKeep.Milliseconds()}}
}

// written returns a note call that writes. Its replicas are waited for by the history's
// key: in a Redis Cluster the task's shard may lie on another server.
func (t *Topic) written(id string, at, due any) call {
	c := t.note(id, at, due)
	c.fence = c.keys[0]
	return c
}
