package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Stored is a record and its state.
type Stored struct {
	Record
	State task.State
	// Next is when the task is to be tried, or when its lease ends; zero if parked.
	Next time.Time
}

// Read returns one task, or task.ErrNotFound.
func (s Shard) Read(ctx context.Context, p Placement, id string) (Stored, error) {
	status, rest, err := answer(s.topic.store.scripts.Run(ctx, luascript.Call{Script: "read",
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

const (
	// FetchIDs is how many tasks one script reads at most.
	FetchIDs = 500
	// fetchBytes limits the bytes of records that one script reads. The record that
	// reaches the limit is the last.
	fetchBytes = 1 << 20
)

// Fetched is the result for one batch.
type Fetched struct {
	// Tasks are the first of the batch, at least one; nil for a task that isn't there. A
	// task whose record can't be read has an Err.
	Tasks []*Stored
	// Err is for the whole batch: a *MovedError, or Redis's.
	Err error
}

// Fetch reads batches of at most FetchIDs tasks, in one round trip.
func (t *Topic) Fetch(ctx context.Context, p Placement, batches []Names) []Fetched {
	return t.fetch(ctx, p.String(), partWhole, batches)
}

// FetchHeads is Fetch without what DecodeHead doesn't unpack.
func (t *Topic) FetchHeads(ctx context.Context, p Placement, batches []Names) []Fetched {
	return t.fetch(ctx, p.String(), partHead, batches)
}

// fetch reads a part of each record. With placement "" the script doesn't check the
// shard's placement.
func (t *Topic) fetch(ctx context.Context, placement string, p part, batches []Names) []Fetched {
	calls := make([]luascript.Call, len(batches))
	for i, n := range batches {
		s := t.Shard(n.Shard)
		calls[i] = luascript.Call{Script: "fetch", Keys: []string{s.due(), s.tasks(), s.fence()},
			Args: append([]any{placement, fetchBytes, int(p)}, anys(n.IDs)...)}
	}
	results := make([]Fetched, len(batches))
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		results[i].Tasks, results[i].Err = t.fetched(reply, p, batches[i].IDs)
	}
	return results
}

func (t *Topic) fetched(reply luascript.Reply, p part, ids []string) ([]*Stored, error) {
	_, rest, err := answer(reply)
	if err != nil {
		return nil, err
	}
	now := rest.Int()
	if n := rest.Left(); n < 3 || n%3 != 0 || n/3 > len(ids) {
		return nil, cmp.Or(rest.Err(), fmt.Errorf("script fetch answered %d values for %d tasks", n, len(ids)))
	}
	tasks := make([]*Stored, 0, len(ids))
	for rest.Left() > 0 {
		score, scored := rest.TextIf()
		record, stored := rest.TextIf()
		left := rest.Int()
		if !scored && !stored {
			tasks = append(tasks, nil)
			continue
		}
		s := t.listed(p, now, listed{ids[len(tasks)], score, record, stored, int(left)})
		if !scored {
			s.Err = errors.New("it has a record and no score")
		}
		tasks = append(tasks, &s)
	}
	return tasks, rest.Err()
}
