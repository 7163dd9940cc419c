package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// MaxBatch is the most tasks one script takes: Lua's unpack fails at about
// 8,000 values.
const MaxBatch = 1000

// Entry is one task to put.
type Entry struct {
	ID   string
	When task.When
	Body []byte
	// IfAbsent stores the task only if none has its ID, IfPresent only if one has. They
	// are for the Router, which puts such tasks in batches of their own.
	IfAbsent, IfPresent bool
	// Op makes a repeated call know the record of an earlier one: it then answers the same
	// and stores nothing. The Router makes an op for entries without one.
	Op Op
}

// whenArg returns a due time as scripts take it: Unix ms, or "+" and ms from the server's
// now. A script refuses "", which stands for the zero When.
func whenArg(w task.When) string {
	if d, relative := w.Wait(); relative {
		return "+" + strconv.FormatInt(max(d.Milliseconds(), 0), 10)
	}
	if at, absolute := w.Instant(); absolute {
		return strconv.FormatInt(at.UnixMilli(), 10)
	}
	return ""
}

// Put is one batch for one shard: at most MaxBatch entries.
type Put struct {
	Shard  int
	Op     Op
	Mode   Mode
	Moving bool // all entries go from one shard to another in this change
	Term   Term // of the intake that sends the batch
	// Cancelled is the time of the last cancel at the old shards of entries that are
	// Moving, in ms. They count as scheduled no earlier.
	Cancelled int64
	Entries   []Entry
	// Wanted reports whether somebody still waits for Entries[i]. It is asked just before
	// each send, repeats included; unwanted entries are left out. nil: all are wanted.
	Wanted func(i int) bool
}

// Mode says which entries of a batch a shard refuses.
type Mode string

const (
	// Always stores all entries.
	Always Mode = ""
	// Absent refuses entries whose task is stored.
	Absent Mode = "absent"
	// Present refuses entries whose task isn't stored.
	Present Mode = "present"
	// PresentAtOld is Present for tasks that lie at their old shards. It refuses those that
	// were in this shard during the present change and aren't any more.
	PresentAtOld Mode = "old"
)

// PutResult is the result of one batch.
type PutResult struct {
	// Due in ms of each entry, in order. It is 0 for a refused entry, and for one that the
	// last send left out. It is set with task.ErrReplicas too.
	Due []int64
	// Left are the replaced versions that were in groups.
	Left []Member
	// Err is for the whole batch: a *MovedError, ErrLate, ErrSuperseded, ErrUnraised, or
	// Redis's.
	Err error
}

// Put stores batches of several shards in one round trip.
func (t *Topic) Put(ctx context.Context, p Placement, deadline int64, batches []Put) []PutResult {
	results := make([]PutResult, len(batches))
	sent := make([]*put, 0, len(batches))
	calls := make([]luascript.Call, 0, len(batches))
	placement := p.String()
	for i := range batches {
		p := &put{batch: &batches[i], placement: placement}
		c := t.Shard(batches[i].Shard).putCall(ctx, p, deadline)
		if c.Args == nil { // nobody waits for any of them
			results[i].Due = make([]int64, len(batches[i].Entries))
			continue
		}
		p.result = &results[i]
		sent, calls = append(sent, p), append(calls, c)
	}
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		p := sent[i]
		err := p.read(reply)
		p.result.Err = wrapIf(err, "put to shard %d of topic %s", p.batch.Shard, t.name)
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

func (s Shard) putCall(ctx context.Context, p *put, deadline int64) luascript.Call {
	renew := func() []any {
		if !p.batch.rejoin(ctx, s.topic) {
			return nil
		}
		return p.args()
	}
	return luascript.Call{Script: "put", Keys: s.taskKeys(s.Wake()), Args: p.args(), Deadline: deadline, Renew: renew,
		ReplicasKey: s.fence()}
}

// rejoin is Topic.rejoin for the entries that are in groups.
func (b *Put) rejoin(ctx context.Context, t *Topic) bool {
	var ids []string
	var bodies [][]byte
	for i := range b.Entries {
		if e := &b.Entries[i]; InGroup(e.Body) {
			ids, bodies = append(ids, e.ID), append(bodies, e.Body)
		}
	}
	return len(ids) == 0 || t.rejoin(ctx, ids, bodies...)
}

// args returns the script's arguments for the entries that are still wanted; nil if none
// is.
func (p *put) args() []any {
	b := p.batch
	args := make([]any, 7, 7+3*len(b.Entries))
	args[0], args[1], args[2], args[3] = p.placement, string(b.Op), luascript.DeadlineArg{}, string(b.Mode)
	args[4], args[5], args[6] = b.Moving, b.Term.String(), b.Cancelled
	p.sent = p.sent[:0]
	for i := range b.Entries {
		if b.Wanted == nil || b.Wanted(i) {
			e := &b.Entries[i]
			args = append(args, e.ID, whenArg(e.When), e.Body)
			p.sent = append(p.sent, i)
		}
	}
	if len(p.sent) == 0 {
		return nil
	}
	return args
}

// read reads the reply to the last send of a batch.
func (p *put) read(reply luascript.Reply) error {
	_, rest, err := answer(reply)
	if err != nil && !errors.Is(err, task.ErrReplicas) {
		return err
	}
	if n := rest.Left(); n < len(p.sent) {
		return fmt.Errorf("script put answered %d due times for %d tasks", n, len(p.sent))
	}
	due := make([]int64, len(p.batch.Entries))
	for _, i := range p.sent {
		due[i] = rest.Int()
	}
	went := readLeft(rest, len(p.sent), func(n int) string { return p.batch.Entries[p.sent[n]].ID })
	if rest.Err() != nil {
		return rest.Err()
	}
	p.result.Due, p.result.Left = due, went
	return err
}
