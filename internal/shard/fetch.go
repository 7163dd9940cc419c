package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
)

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
	for i, reply := range t.runAll(ctx, calls) {
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
