// Package shard keeps one topic's tasks in M sorted sets (shards) in Redis. It has the
// keys, the placement of IDs and the scripts, each with one Lua file and one Go method.
//
// A task is a member of its shard's sorted set, and has a record in a hash. The score is
// the task's state:
//
//	0 <= score < +inf   waiting: due, or to be tried again, at that Redis ms
//	score < 0           leased until -score; the score is also the lease's token
//	score = +inf        parked
//
// Scripts on one shard are atomic; nothing is atomic across shards. docs/protocol.md
// says how callers combine them.
package shard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Shard is one of a topic's sorted sets, with its other keys. Most methods run one
// script.
type Shard struct {
	topic *Topic
	n     int
}

// Shard returns a handle of shard n, from 0; the shard need not exist.
func (t *Topic) Shard(n int) Shard { return Shard{t, n} }

// Move describes one new due time; see Shard.Reschedule.
type Move struct {
	Op     Op
	ID     string
	When   When
	Moving bool
	// Fallback is the task as read at the old shard while it is moving; nil if it is not
	// there.
	Fallback *Record
}

// MissingError is task.ErrNotFound with the time at which the task was missing.
type MissingError struct {
	// At is in ms, by the clock of the shard's server.
	At int64
}

func (e *MissingError) Error() string { return task.ErrNotFound.Error() }

// Unwrap makes the error match task.ErrNotFound.
func (e *MissingError) Unwrap() error { return task.ErrNotFound }

// Reschedule gives a task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns a *MissingError.
func (s Shard) Reschedule(ctx context.Context, p Placement, deadline int64, m Move) (int64, error) {
	status, rest, err := answer(s.topic.run(ctx, s.rescheduleCall(p, deadline, m)))
	err = wrapIf(err, "reschedule in shard %d of topic %s", s.n, s.topic.name)
	if status == "" {
		return 0, err
	}
	at := rest.Int()
	switch {
	case rest.Err() != nil:
		return 0, rest.Err()
	case status == "none":
		return 0, &MissingError{At: at}
	}
	return at, err
}

func (s Shard) rescheduleCall(p Placement, deadline int64, m Move) luascript.Call {
	fallback := ""
	if m.Fallback != nil {
		fallback = m.Fallback.raw
	}
	return luascript.Call{Script: "reschedule", Keys: s.taskKeys(s.Wake()), Deadline: deadline, ReplicasKey: s.fence(),
		Args: []any{p.String(), string(m.Op), luascript.DeadlineArg{}, m.ID, m.When.String(), m.Moving, fallback}}
}

// Stored is a record and its state.
type Stored struct {
	Record
	State task.State
	// Next is when the task is to be tried, or when its lease ends; zero if parked.
	Next time.Time
}

// Read returns one task, or task.ErrNotFound.
func (s Shard) Read(ctx context.Context, p Placement, id string) (Stored, error) {
	status, rest, err := answer(s.topic.run(ctx, luascript.Call{Script: "read",
		Keys: []string{s.due(), s.tasks(), s.fence()}, Args: []any{p.String(), id}}))
	if err != nil {
		return Stored{}, fmt.Errorf("read from shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	if status == "none" {
		return Stored{}, task.ErrNotFound
	}
	scoreText, text := rest.Text(), rest.Text()
	if rest.Err() != nil {
		return Stored{}, rest.Err()
	}
	r, err := DecodeRecord(s.topic.name, id, text)
	if err != nil {
		return Stored{}, fmt.Errorf("read task %q: %w", id, err)
	}
	score, err := strconv.ParseFloat(scoreText, 64)
	if err != nil {
		return Stored{}, fmt.Errorf("read score of task %q: %w", id, err)
	}
	return Stored{Record: r, State: stateOf(score), Next: attention(score)}, nil
}
