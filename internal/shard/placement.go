package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Place returns the shard that holds id, from 0 to shards-1; shards must be at least 1.
// It is jump consistent hashing (Lamping and Veach, "A Fast, Minimal Memory, Consistent
// Hash Algorithm", 2014) over the 64-bit xxHash of the ID. Going from M to M+1 shards
// moves 1/(M+1) of the tasks and no others. Other languages must place alike:
// testdata/place.json and docs/protocol.md hold vectors.
func Place(id string, shards int) int {
	return jump(xxhash.Sum64String(id), shards)
}

func jump(key uint64, buckets int) int {
	var b, j int64 = -1, 0
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((key>>33)+1)))
	}
	return int(b)
}

// Phase is the state of a topic's placement.
type Phase string

const (
	// Stable placements have every task in its place.
	Stable Phase = "stable"
	// Migrating placements may still have tasks where the previous shard count put them.
	Migrating Phase = "migrating"
	// Removed placements belong to a topic that an operator removed. They stay, so that a
	// new topic of the same name begins above the epochs its shards have seen.
	Removed Phase = "removed"
)

// MaxShards is the most shards of a topic.
const MaxShards = 4096

// Placement says where tasks lie. It is the truth, while a topic's document says what is
// desired. Every step takes a new epoch: stable E, migrating E+1, stable E+2.
type Placement struct {
	Epoch    int64
	Shards   int
	Previous int
	Phase    Phase
}

// String returns the form that scripts and keys hold.
func (p Placement) String() string {
	return fmt.Sprintf("%d %d %d %s", p.Epoch, p.Shards, p.Previous, p.Phase)
}

func parsePlacement(text string) (Placement, error) {
	var p Placement
	if _, err := fmt.Sscanf(text, "%d %d %d %s", &p.Epoch, &p.Shards, &p.Previous, &p.Phase); err != nil {
		return p, fmt.Errorf("placement %.100q: %w", text, err)
	}
	known := p.Phase == Stable || p.Phase == Migrating || p.Phase == Removed
	if !known || p.Shards < 1 || p.Shards > MaxShards || p.Previous < 1 || p.Previous > MaxShards {
		return p, fmt.Errorf("placement %.100q: not of this version's format; is an older duefleet running next to a "+
			"newer one?", text)
	}
	return p, nil
}

// Scanned returns how many shards the fleet polls: all that may hold tasks.
func (p Placement) Scanned() int {
	if p.Phase == Migrating {
		return max(p.Shards, p.Previous)
	}
	return p.Shards
}

// New returns the shard an ID belongs to.
func (p Placement) New(id string) int { return Place(id, p.Shards) }

// Old returns the shard an ID belonged to before the change that is under way.
func (p Placement) Old(id string) int { return Place(id, p.Previous) }

// Moving reports whether an ID goes from one shard to another in this change. Operations
// on such an ID ask both shards.
func (p Placement) Moving(id string) bool {
	return p.Phase == Migrating && p.Old(id) != p.New(id)
}

// Where returns the shards where a task may lie, the old one first. Tasks move from there
// to the new one and never back, so a caller that asks in this order misses none.
func (p Placement) Where(id string) []int {
	if p.Moving(id) {
		return []int{p.Old(id), p.New(id)}
	}
	return []int{p.New(id)}
}

// InOrder returns all shards that may hold tasks. Shards that tasks move away from come
// first: the higher ones if the shard count shrinks, else the lower ones.
func (p Placement) InOrder() []int {
	all := make([]int, p.Scanned())
	for i := range all {
		all[i] = i
	}
	if p.Previous > p.Shards {
		slices.Reverse(all)
	}
	return all
}

// Placement reads the placement. It returns task.ErrUnknownTopic if no scanner ever
// served the topic, or if the topic was removed.
func (t *Topic) Placement(ctx context.Context) (Placement, error) {
	return t.placementFrom(t.store.Client(ctx).HGet(ctx, t.placementKey(), "value").Result())
}

// PlacementRead is a placement, or the error of Topic.Placement.
type PlacementRead struct {
	Placement
	Err error
}

// Placements reads the placements of topics in pipelines. A node of a Redis Cluster that hangs until
// ctx ends spoils only its own topics. The results are in the order of the topics.
func (s *Store) Placements(ctx context.Context, topics []*Topic) []PlacementRead {
	keys := make([]string, len(topics))
	for i, t := range topics {
		keys[i] = t.placementKey()
	}
	all := make([]PlacementRead, len(topics))
	for i, answer := range pipelined(ctx, s, keys, func(pipe redis.Pipeliner, key string) *redis.StringCmd {
		return pipe.HGet(ctx, key, "value")
	}) {
		all[i].Placement, all[i].Err = topics[i].placementFrom(answer.Result())
	}
	return all
}

func (t *Topic) placementFrom(text string, err error) (Placement, error) {
	if errors.Is(err, redis.Nil) {
		return Placement{}, unknownTopic(t.name)
	}
	if err != nil {
		return Placement{}, fmt.Errorf("read placement of topic %s: %w", t.name, err)
	}
	p, err := parsePlacement(text)
	if err == nil && p.Phase == Removed {
		return p, unknownTopic(t.name)
	}
	return p, err
}

func unknownTopic(name string) error {
	return fmt.Errorf("%w %s: no scanner serves it under this Redis prefix; add it where running scanners take their "+
		"topics from: their file, or Consul by `scanner topic create`", task.ErrUnknownTopic, name)
}

// Ensure returns the topic's placement. If there is none, it makes one of that many
// shards. It also adds the topic to the known ones.
func (t *Topic) Ensure(ctx context.Context, shards int) (Placement, error) {
	if err := checkShards(shards); err != nil {
		return Placement{}, err
	}
	p, err := t.ensure(ctx, shards)
	if err != nil {
		return p, err
	}
	return p, t.store.registry.AddTopic(ctx, t.name) // last: a removal that ends before would take it off the list
}

func (t *Topic) ensure(ctx context.Context, shards int) (Placement, error) {
	for {
		p, err := t.Placement(ctx)
		if err == nil || !errors.Is(err, task.ErrUnknownTopic) {
			return p, err
		}
		if restored, err := t.restoreSeen(ctx, p, shards); err != nil || restored {
			if err != nil {
				return p, err
			}
			continue
		}
		wanted := Placement{Epoch: p.Epoch + 1, Shards: shards, Previous: shards, Phase: Stable}
		if p.Phase == Removed { // tasks its removal may have left are moved like any others
			wanted.Previous, wanted.Phase = max(p.Shards, p.Previous), Migrating
		}
		if done, err := t.change(ctx, p, wanted); err != nil || done {
			return wanted, err
		}
	}
}

// Begin starts a change from a stable placement to another shard count, and reports
// whether it did. It doesn't if another caller was first. Neither does it if a shard has
// seen a newer placement: then it puts that one back.
func (t *Topic) Begin(ctx context.Context, from Placement, shards int) (bool, error) {
	if err := checkShards(shards); err != nil {
		return false, err
	}
	if from.Phase != Stable {
		return false, nil
	}
	if restored, err := t.restoreSeen(ctx, from, from.Shards); err != nil || restored {
		return false, err
	}
	return t.change(ctx, from, Placement{from.Epoch + 1, shards, from.Shards, Migrating})
}

func checkShards(n int) error {
	if n < 1 || n > MaxShards {
		return fmt.Errorf("shards: must be 1 to %d; got %d", MaxShards, n)
	}
	return nil
}

// Finish ends a change whose shards are all clean, and reports whether it did. Then it
// shows every shard the stable placement, which empties their handled sets.
func (t *Topic) Finish(ctx context.Context, from Placement) (bool, error) {
	stable := Placement{from.Epoch + 1, from.Shards, from.Shards, Stable}
	done, err := t.change(ctx, from, stable)
	if err != nil || !done {
		return false, err
	}
	return true, t.fenceAll(ctx, stable, from.Scanned())
}

func (t *Topic) fenceAll(ctx context.Context, p Placement, shards int) error {
	at := make([]Names, shards)
	for s := range at {
		at[s].Shard = s
	}
	for _, fenced := range t.FenceAll(ctx, p, at) {
		var moved *MovedError
		if errors.As(fenced.Err, &moved) {
			return nil // a newer change is under way and empties them itself
		}
		if fenced.Err != nil {
			return fenced.Err
		}
	}
	return nil
}

func (t *Topic) change(ctx context.Context, from, to Placement) (bool, error) {
	expected := ""
	if from.Epoch > 0 {
		expected = from.String()
	}
	c := luascript.Call{Script: "cas_placement", Keys: []string{t.placementKey(), t.changes()},
		Args: []any{expected, to.String(), rand.Text()}}
	reply := t.store.scripts.Run(ctx, c).Values()
	done := reply.Int() == 1
	return done, wrapIf(reply.Err(), "change placement of topic %s", t.name)
}
