package shard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// In the delivery history of an ID, consumers and producers tell each other about a task
// whose record may be gone. It says which deliveries were handled,
// which delivery follows which, and whether the task was cancelled. It has a slot of its
// own, whatever the shard count, and expires. Only consumers that remember deliveries
// write one for each task. A producer writes one when it changes a task that may have
// been delivered. See docs/adr/0008.

// historyKeep is how long a producer's note stays: longer than a message is expected to wait
// in a queue.
const historyKeep = 24 * time.Hour

func (t *Topic) historyKeys(id string) []string {
	return []string{t.store.prefix + ":history:{" + t.name + ":" + id + "}"}
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

// CheckDelivery returns the disposition of a delivery. With a window, it also remembers
// for that long that a handler has the delivery; with 0 it writes nothing.
func (t *Topic) CheckDelivery(ctx context.Context, d Delivered, window time.Duration) (Disposition, error) {
	call := luascript.Call{Script: "check_delivery", Keys: t.historyKeys(d.ID),
		Args: []any{d.Due, d.Scheduled, window > 0, window.Milliseconds()}}
	text, err := t.store.scripts.Run(ctx, call).Text()
	return Disposition(text), wrapIf(err, "look up the delivery history of task %q of topic %s", d.ID, t.name)
}

// Done remembers, for the window, that the delivery of that due time was handled.
func (t *Topic) Done(ctx context.Context, id string, due int64, window time.Duration) error {
	call := luascript.Call{Script: "done", Keys: t.historyKeys(id), Args: []any{due, window.Milliseconds()}}
	return wrapIf(t.store.scripts.Run(ctx, call).Err(), "remember task %q of topic %s", id, t.name)
}

// AllowNext asks whether a delivery may be followed by another one of the same task, due at
// next in ms (0: by parking it). It returns when that one is due: after d in any case. ok
// is false if the chain is superseded.
func (t *Topic) AllowNext(ctx context.Context, d Delivered, next int64, window time.Duration) (at int64, ok bool,
	err error) {
	var when any = next
	if next == 0 {
		when = ""
	}
	args := []any{d.Due, d.Scheduled, when, window.Milliseconds()}
	reply := t.store.scripts.Run(ctx, luascript.Call{Script: "allow_next", Keys: t.historyKeys(d.ID), Args: args}).Values()
	if ok = reply.Text() == "ok"; ok {
		at = reply.Int()
	}
	if err := reply.Err(); err != nil {
		return 0, false, fmt.Errorf("look up the delivery history of task %q of topic %s: %w", d.ID, t.name, err)
	}
	return at, ok, nil
}

// Older reports whether a stored record follows an older version than a's delivery does.
func (t *Topic) Older(ctx context.Context, a Requeue, there Kept) (bool, error) {
	args := []any{a.Due, a.Scheduled, there.Due, there.Scheduled}
	n, err := t.store.scripts.Run(ctx, luascript.Call{Script: "older", Keys: t.historyKeys(a.ID), Args: args}).Int()
	return n == 1, wrapIf(err, "look up the delivery history")
}

// notesAtOnce is how many cancels one script notes, so that Redis serves others in between.
const notesAtOnce = 100

// Noted is the answer to the note of a cancel.
type Noted struct {
	// Delivered: a consumer has had a delivery of the task, and may have stored it again before it
	// could see the note.
	Delivered bool
	Err       error
}

// NoteCancelled notes for consumers that tasks were cancelled, each at a time in ms by the
// clock of its shard. In a Redis Cluster each delivery history has a slot of its own, and takes a
// script of its own.
func (t *Topic) NoteCancelled(ctx context.Context, ids []string, at []int64) []Noted {
	size := notesAtOnce
	if _, clustered := t.store.Client(ctx).(*redis.ClusterClient); clustered {
		size = 1
	}
	var calls []luascript.Call
	for from := 0; from < len(ids); from += size {
		to := min(from+size, len(ids))
		calls = append(calls, t.noteCall(ids[from:to], at[from:to]))
	}
	replies, noted := t.store.scripts.RunAll(ctx, calls), make([]Noted, 0, len(ids))
	t.store.runFailed(ctx, calls, replies)
	for i, reply := range replies {
		answers := reply.Values()
		for _, id := range ids[len(noted):min((i+1)*size, len(ids))] {
			one := Noted{Delivered: answers.Int() == 1}
			one.Err = wrapIf(cmp.Or(answers.Err(), reply.Err()), "note the cancellation of task %q of topic %s", id, t.name)
			noted = append(noted, one)
		}
	}
	return noted
}

// noteCall returns the call that notes cancels. Its replicas are waited for by the first
// history's key: in a Redis Cluster the task's shard may lie on another server.
func (t *Topic) noteCall(ids []string, at []int64) luascript.Call {
	keys, args := make([]string, len(ids)), make([]any, 1, 1+len(ids))
	args[0] = historyKeep.Milliseconds()
	for i, id := range ids {
		keys[i] = t.historyKeys(id)[0]
		args = append(args, at[i])
	}
	return luascript.Call{Script: "note", Keys: keys, Args: args, ReplicasKey: keys[0]}
}
