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
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

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

// Entry is one task to put.
type Entry struct {
	ID   string
	When When
	Body []byte
	// IfAbsent stores the task only if none has its ID. It is for the Router, which puts
	// such tasks in batches of their own.
	IfAbsent bool
}

// Put is one batch for one shard: at most MaxBatch entries.
type Put struct {
	Shard   int
	Op      Op
	Absent  bool // refuse entries whose task is there already
	Moving  bool // all entries go from one shard to another in this change
	Entries []Entry
	// Wanted reports whether somebody still waits for Entries[i]. It is asked just before
	// each send, repeats included; unwanted entries are left out. nil: all are wanted.
	Wanted func(i int) bool
}

// PutResult is the result of one batch.
type PutResult struct {
	// Due in ms of each entry, in order. It is 0 for a task that exists already, and for
	// an entry that the last send left out. It is set with task.ErrReplicas too.
	Due []int64
	// Err is for the whole batch: a *MovedError, ErrLate, or Redis's.
	Err error
}

// Put stores batches of several shards in one round trip.
func (t *Topic) Put(ctx context.Context, p Placement, notAfter int64, batches []Put) []PutResult {
	results := make([]PutResult, len(batches))
	sent := make([]*put, 0, len(batches))
	calls := make([]call, 0, len(batches))
	placement := p.String()
	for i := range batches {
		p := &put{batch: &batches[i], placement: placement, result: &results[i]}
		c := t.Shard(batches[i].Shard).putCall(p, notAfter)
		if c.args == nil { // nobody waits for any of them
			results[i].Due = make([]int64, len(batches[i].Entries))
			continue
		}
		sent, calls = append(sent, p), append(calls, c)
	}
	for i, cmd := range t.runAll(ctx, calls) {
		p := sent[i]
		p.answer(cmd)
		p.result.Err = wrapIf(p.result.Err, "put to shard %d of topic %s", p.batch.Shard, t.name)
	}
	return results
}

// put is one batch under way.
type put struct {
	batch     *Put
	placement string
	sent      []int // entries of the last send
	result    *PutResult
}

func (s Shard) putCall(p *put, notAfter int64) call {
	return call{script: "put", keys: s.taskKeys(s.Wake()), args: p.args(notAfter), notAfter: 2, fence: s.fence(),
		renew: p.args}
}

// args returns the script's arguments for the entries that are still wanted; nil if none
// is.
func (p *put) args(notAfter int64) []any {
	b, mode := p.batch, ""
	if b.Absent {
		mode = "absent"
	}
	args := make([]any, 5, 5+3*len(b.Entries))
	args[0], args[1], args[2], args[3], args[4] = p.placement, string(b.Op), notAfter, mode, oneIf(b.Moving)
	p.sent = p.sent[:0]
	for i := range b.Entries {
		if b.Wanted == nil || b.Wanted(i) {
			e := &b.Entries[i]
			args = append(args, e.ID, e.When.String(), e.Body)
			p.sent = append(p.sent, i)
		}
	}
	if len(p.sent) == 0 {
		return nil
	}
	return args
}

// answer reads the result of the last send.
func (p *put) answer(cmd *redis.Cmd) {
	_, rest, err := answer(cmd)
	if len(rest) != len(p.sent) && (err == nil || len(rest) > 0) {
		err = fmt.Errorf("script put answered %d due times for %d tasks", len(rest), len(p.sent))
		rest = nil
	}
	p.result.Err = err
	if len(rest) == 0 {
		return
	}
	p.result.Due = make([]int64, len(p.batch.Entries))
	for i, v := range rest {
		p.result.Due[p.sent[i]], _ = v.(int64)
	}
}

// Names are tasks in one shard, by their IDs.
type Names struct {
	Shard int
	IDs   []string
}

// Fenced is the answer of a shard that was shown a placement.
type Fenced struct {
	// Records of the requested tasks, in order; nil for a task that isn't there. A record
	// that can't be read has only its Err set.
	Records []*Record
	// Err is for the whole shard: a *MovedError, or Redis's.
	Err error
}

// Fence shows a shard a placement and reads tasks under it. A record that isn't there is
// nil; one that can't be read is an error.
func (s Shard) Fence(ctx context.Context, p Placement, ids ...string) ([]*Record, error) {
	fenced := s.topic.FenceAll(ctx, p, []Names{{s.n, ids}})[0]
	for _, r := range fenced.Records {
		if r != nil && r.Err != nil {
			return nil, r.Err
		}
	}
	return fenced.Records, fenced.Err
}

// FenceAll is Fence for several shards, in one round trip. A record that can't be read
// has its Err set.
func (t *Topic) FenceAll(ctx context.Context, p Placement, at []Names) []Fenced {
	calls := make([]call, len(at))
	placement := p.String()
	for i, n := range at {
		args := make([]any, 1, 1+len(n.IDs))
		args[0] = placement
		for _, id := range n.IDs {
			args = append(args, id)
		}
		calls[i] = call{script: "fence", keys: []string{t.Shard(n.Shard).tasks(), t.Shard(n.Shard).fence(),
			t.Shard(n.Shard).handled()}, args: args, fence: t.Shard(n.Shard).fence()}
	}
	results := make([]Fenced, len(at))
	for i, cmd := range t.runAll(ctx, calls) {
		results[i] = t.fenced(cmd, at[i])
		if err := results[i].Err; err != nil {
			results[i].Err = fmt.Errorf("fence shard %d of topic %s: %w", at[i].Shard, t.name, err)
		}
	}
	return results
}

func (t *Topic) fenced(cmd *redis.Cmd, n Names) Fenced {
	_, rest, err := answer(cmd)
	if err != nil {
		return Fenced{Err: err}
	}
	records := make([]*Record, len(n.IDs))
	for i, id := range n.IDs[:min(len(n.IDs), len(rest))] {
		text, there := rest[i].(string)
		if !there {
			continue
		}
		r, err := DecodeRecord(t.name, id, text)
		if err != nil {
			r = Record{Err: fmt.Errorf("read task %q: %w", id, err)}
		}
		records[i] = &r
	}
	return Fenced{Records: records}
}

// deletion returns the call that removes tasks in any state. With handled, it notes their
// IDs as taken over, so that no mover brings them back.
func (t *Topic) deletion(p Placement, notAfter int64, handled bool, n Names) call {
	args := make([]any, 3, 3+len(n.IDs))
	args[0], args[1], args[2] = p.String(), notAfter, oneIf(handled)
	for _, id := range n.IDs {
		args = append(args, id)
	}
	return call{script: "delete", keys: t.Shard(n.Shard).taskKeys(), args: args, notAfter: 1,
		fence: t.Shard(n.Shard).fence()}
}

func (s Shard) undeleted(err error) error {
	return fmt.Errorf("delete from shard %d of topic %s: %w", s.n, s.topic.name, err)
}

// Withdrawn is the result of Withdraw.
type Withdrawn struct {
	// There: the task was stored.
	There bool
	// Tried: a message of it may be out.
	Tried bool
	// History: the ID has a delivery history.
	History bool
	// At is the time of the shard's server, in ms.
	At int64
}

// Withdraw deletes one task in any state. In the same round trip it looks whether the ID
// has a delivery history. With handled, it notes the ID as taken over, so that no mover
// brings the task back.
func (s Shard) Withdraw(ctx context.Context, p Placement, notAfter int64, handled bool, id string) (Withdrawn, error) {
	ask := s.topic.note(id, "", "")
	cmds := s.topic.runAll(ctx, []call{s.topic.deletion(p, notAfter, handled, Names{s.n, []string{id}}), ask})
	_, rest, err := answer(cmds[0])
	if err != nil {
		return Withdrawn{}, s.undeleted(err)
	}
	history, err := cmds[1].Int()
	if err != nil { // in the pipeline of a call that was repeated
		history, err = s.topic.run(ctx, ask).Int()
	}
	if err != nil || len(rest) < 2 {
		return Withdrawn{}, fmt.Errorf("look up the delivery history of task %q of topic %s: %w", id, s.topic.name, err)
	}
	r := Withdrawn{There: rest[0] != int64(0), Tried: rest[0] == int64(2), History: history == 1}
	r.At, _ = rest[1].(int64)
	return r, nil
}

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

// missingError is task.ErrNotFound with the time in ms, by the clock of the shard, at
// which the task was missing there.
type missingError struct{ at int64 }

func (e *missingError) Error() string { return task.ErrNotFound.Error() }
func (e *missingError) Unwrap() error { return task.ErrNotFound }

// Reschedule gives a task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns task.ErrNotFound.
func (s Shard) Reschedule(ctx context.Context, p Placement, notAfter int64, m Move) (int64, error) {
	status, rest, err := answer(s.topic.run(ctx, s.rescheduleCall(p, notAfter, m)))
	if err != nil {
		err = fmt.Errorf("reschedule in shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	switch status {
	case "ok":
		due, _ := rest[0].(int64)
		return due, err
	case "none":
		at, _ := rest[0].(int64)
		return 0, &missingError{at}
	}
	return 0, err
}

func (s Shard) rescheduleCall(p Placement, notAfter int64, m Move) call {
	fallback := ""
	if m.Fallback != nil {
		fallback = m.Fallback.raw
	}
	args := []any{p.String(), string(m.Op), notAfter, m.ID, m.When.String(), oneIf(m.Moving), fallback}
	return call{script: "reschedule", keys: s.taskKeys(s.Wake()), args: args, notAfter: 2, fence: s.fence()}
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
	keys := []string{s.due(), s.tasks(), s.fence()}
	status, rest, err := answer(s.topic.run(ctx, call{script: "read", keys: keys, args: []any{p.String(), id}}))
	if err != nil {
		return Stored{}, fmt.Errorf("read from shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	if status == "none" {
		return Stored{}, task.ErrNotFound
	}
	if len(rest) < 2 {
		return Stored{}, errors.New("read: short answer")
	}
	scoreText, _ := rest[0].(string)
	text, _ := rest[1].(string)
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
