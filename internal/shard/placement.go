package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Phase is whether a topic's shard count stands or is changing.
type Phase string

const (
	// Stable placements have every task in its place.
	Stable Phase = "stable"
	// Migrating placements have tasks where the previous shard count put them.
	Migrating Phase = "migrating"
	// Removed placements belong to a topic an operator removed. They stay, so
	// that a topic of the same name begins above the epochs its shards have seen.
	Removed Phase = "removed"
)

// MaxShards is the most shards of a topic.
const MaxShards = 4096

// Placement says where tasks lie: the truth, while a topic's document is the
// wish. Every step takes a new epoch: stable E, migrating E+1, stable E+2.
type Placement struct {
	Epoch    int64
	Shards   int
	Previous int
	Phase    Phase
}

// String is the form that scripts and keys hold.
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
		return p, fmt.Errorf("placement %.100q: not of this version's format; is an older duefleet beside a newer one?", text)
	}
	return p, nil
}

// Scanned is how many shards the fleet attends: all that may hold tasks.
func (p Placement) Scanned() int {
	if p.Phase == Migrating {
		return max(p.Shards, p.Previous)
	}
	return p.Shards
}

// New is the shard an ID belongs to.
func (p Placement) New(id string) int { return Place(id, p.Shards) }

// Old is the shard an ID belonged to before the change that is under way.
func (p Placement) Old(id string) int { return Place(id, p.Previous) }

// Split says whether an ID is moving house, so that operations on it touch both.
func (p Placement) Split(id string) bool {
	return p.Phase == Migrating && p.Old(id) != p.New(id)
}

// Placement reads the placement. A topic that no scanner ever served, and one
// that was removed, is task.ErrUnknownTopic.
func (t *Topic) Placement(ctx context.Context) (Placement, error) {
	return t.placementFrom(t.rdb.HGet(ctx, t.placementKey(), "value").Result())
}

// Draw takes the next n tickets of the topic, 1 to MaxShards, and reads the placement,
// with the errors of Topic.Placement. It returns the first of them; the others follow
// it. Tickets whose answer was lost are nobody's: the next ones stand for their shards
// one round later.
func (t *Topic) Draw(ctx context.Context, n int) (first int64, p Placement, err error) {
	reply, err := t.run(ctx, call{script: "draw", keys: []string{t.ticketKey(), t.placementKey()}, args: []any{n}}).Slice()
	if err != nil {
		return 0, p, err
	}
	text, there := reply[1].(string)
	if !there {
		err = redis.Nil
	}
	last, _ := reply[0].(int64)
	p, err = t.placementFrom(text, err)
	return last - int64(n) + 1, p, err
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
	return fmt.Errorf("%w %s: no scanner serves it under this Redis prefix; add it to the configuration of a running scanner", task.ErrUnknownTopic, name)
}

// Ensure returns the topic's placement and makes one of that many shards if
// there is none. It also notes the topic among the known ones.
func (t *Topic) Ensure(ctx context.Context, shards int) (Placement, error) {
	if err := checkShards(shards); err != nil {
		return Placement{}, err
	}
	p, err := t.ensure(ctx, shards)
	if err != nil {
		return p, err
	}
	return p, t.list(ctx) // last: a removal that ends now would take it off again
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
		if p.Phase == Removed { // what its removal may have left is moved like anything else
			wanted.Previous, wanted.Phase = max(p.Shards, p.Previous), Migrating
		}
		if done, err := t.change(ctx, p, wanted); err != nil || done {
			return wanted, err
		}
	}
}

// Begin starts a change from a stable placement to another shard count, and
// answers whether it did: another may have been first, or a shard has seen a newer
// placement, which is put back instead.
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

// Strays are tasks in shards that a placement does not attend, where nobody would
// deliver them: Redis lost a placement, and what the shards had seen of it too.
type Strays struct {
	Tasks int64
	// Within is the least number of shards that holds all of them.
	Within int
}

// Strays counts the tasks in shards that p does not attend, all up to MaxShards: a
// command for each. Those that can't be read are left out, and named by an
// *UnreadableError.
func (t *Topic) Strays(ctx context.Context, p Placement) (Strays, error) {
	pipe := t.rdb.Pipeline()
	counts := map[int]*redis.IntCmd{}
	for at := p.Scanned(); at < MaxShards; at++ {
		counts[at] = pipe.ZCard(ctx, t.Shard(at).due())
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var out Strays
	failed := map[int]error{}
	for at, count := range counts {
		n, err := count.Result()
		if err != nil {
			failed[at] = fmt.Errorf("look for tasks outside the shards of topic %s: shard %d: %w", t.name, at, err)
		} else if n > 0 {
			out.Tasks += n
			out.Within = max(out.Within, at+1)
		}
	}
	return out, t.LeftOut(len(counts), failed)
}

// Gather begins a change from a stable placement to the same shard count that brings
// strays home, and answers whether it did, as Begin does. What lies in its place is
// not touched.
func (t *Topic) Gather(ctx context.Context, from Placement, strays Strays) (bool, error) {
	if from.Phase != Stable || strays.Within <= from.Shards {
		return false, nil
	}
	if restored, err := t.restoreSeen(ctx, from, strays.Within); err != nil || restored {
		return false, err
	}
	return t.change(ctx, from, Placement{from.Epoch + 1, from.Shards, strays.Within, Migrating})
}

// Finish ends a change whose shards are all clean, and shows every shard the
// stable placement, which empties their ledgers.
func (t *Topic) Finish(ctx context.Context, from Placement) (bool, error) {
	stable := Placement{from.Epoch + 1, from.Shards, from.Shards, Stable}
	done, err := t.change(ctx, from, stable)
	if err != nil || !done {
		return false, err
	}
	return true, t.touchAll(ctx, stable, from.Scanned())
}

// Gone is the placement that a removal leaves behind.
func (p Placement) Gone() Placement {
	if p.Phase == Removed { // an earlier call got no further
		return p
	}
	return Placement{p.Epoch + 1, p.Shards, p.Previous, Removed}
}

// Remove ends a topic: its shards refuse every placement known so far, so that
// a producer that has not heard is told that the topic is unknown.
func (t *Topic) Remove(ctx context.Context, from Placement) (bool, error) {
	gone := from.Gone()
	if gone != from {
		if done, err := t.change(ctx, from, gone); err != nil || !done {
			return false, err
		}
	}
	return true, t.touchAll(ctx, gone, max(gone.Shards, gone.Previous))
}

// Clear removes what the shards of a removed topic hold, and answers how many
// tasks went. Unless tasks may be purged, a shard that holds some is left as it is,
// and left is how many those are. A *MovedError says that the topic was made anew:
// what its shards hold then is that one's.
func (t *Topic) Clear(ctx context.Context, gone Placement, purge bool) (went, left int64, err error) {
	calls := make([]call, max(gone.Shards, gone.Previous))
	for i := range calls {
		keys := []string{t.Shard(i).due(), t.Shard(i).tasks(), t.Shard(i).gate(), t.Shard(i).ledger()}
		calls[i] = call{script: "clear", keys: keys, args: []any{gone.String(), oneIf(purge)}}
	}
	for i, cmd := range t.runAll(ctx, calls) {
		status, rest, err := answer(cmd)
		if err != nil {
			return went, left, fmt.Errorf("clear shard %d of topic %s: %w", i, t.name, err)
		}
		n, _ := rest[0].(int64)
		if status == "ok" {
			went += n
		} else {
			left += n
		}
	}
	return went, left, nil
}

// Restore puts back a placement that a shard's gate has seen and the placement
// key has not, as after a failover to a replica that lagged behind. Where the key
// has another one of the same epoch it is task.ErrForked: each has tasks where the
// other would not look for them.
func (t *Topic) Restore(ctx context.Context, seen Placement) error {
	p, err := t.Placement(ctx)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return err
	}
	if p.Epoch > seen.Epoch || p == seen {
		return nil
	}
	if p.Epoch == seen.Epoch {
		return t.forked(p, seen)
	}
	_, err = t.change(ctx, p, seen)
	return err
}

func (t *Topic) forked(p, seen Placement) error {
	return fmt.Errorf("topic %s: %w: %q is in force, and a shard has seen %q", t.name, task.ErrForked, p, seen)
}

// Forked is task.ErrForked if one of the attended shards has seen another placement
// of the same epoch. Its callers are refused, and it can't be found clean. Else shards
// that can't be read are named by an *UnreadableError.
func (t *Topic) Forked(ctx context.Context, p Placement) error {
	seen, err := t.seen(ctx, p.Scanned())
	for _, s := range seen {
		if s.Epoch == p.Epoch && s != p {
			return t.forked(p, s)
		}
	}
	return err
}

// restoreSeen puts back the newest placement that one of the first n shards has
// seen, if it is newer than p, and answers whether there was one. A change that
// began from p would have that one's epoch.
func (t *Topic) restoreSeen(ctx context.Context, p Placement, n int) (bool, error) {
	seen, err := t.seen(ctx, n)
	if err != nil {
		return false, err
	}
	newest := p
	for _, s := range seen {
		if s.Epoch > newest.Epoch {
			newest = s
		}
	}
	if newest == p {
		return false, nil
	}
	return true, t.Restore(ctx, newest)
}

// seen are the placements that the gates of the first n shards have seen; shards
// that have seen none are left out, and those that can't be read are named by an
// *UnreadableError.
func (t *Topic) seen(ctx context.Context, n int) ([]Placement, error) {
	pipe := t.rdb.Pipeline()
	gates := make([]*redis.StringCmd, n)
	for i := range gates {
		gates[i] = pipe.HGet(ctx, t.Shard(i).gate(), "placement")
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var all []Placement
	failed := map[int]error{}
	for i, g := range gates {
		text, err := g.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		var p Placement
		if err == nil {
			p, err = parsePlacement(text)
		}
		if err != nil {
			failed[i] = fmt.Errorf("read the gate of shard %d of topic %s: %w", i, t.name, err)
			continue
		}
		all = append(all, p)
	}
	return all, t.LeftOut(n, failed)
}

func (t *Topic) touchAll(ctx context.Context, p Placement, shards int) error {
	at := make([]Names, shards)
	for s := range at {
		at[s].Shard = s
	}
	for _, touched := range t.TouchAll(ctx, p, at) {
		var moved *MovedError
		if errors.As(touched.Err, &moved) {
			return nil // a newer change is under way and empties them itself
		}
		if touched.Err != nil {
			return touched.Err
		}
	}
	return nil
}

func (t *Topic) change(ctx context.Context, from, to Placement) (bool, error) {
	expected := ""
	if from.Epoch > 0 {
		expected = from.String()
	}
	c := call{script: "place", keys: []string{t.placementKey(), t.changes()}, args: []any{expected, to.String(), rand.Text()}}
	reply, err := t.run(ctx, c).Slice()
	if err != nil {
		return false, fmt.Errorf("change placement of topic %s: %w", t.name, redisError(err))
	}
	return reply[0] == int64(1), nil
}

// MarkClean notes that a shard holds nothing misplaced under p, and answers how
// many shards are left; -1 if the placement is another one by now.
func (t *Topic) MarkClean(ctx context.Context, p Placement, shard int) (left int, err error) {
	c := call{script: "mark", keys: []string{t.placementKey()}, args: []any{p.String(), shard, p.Scanned()}}
	left, err = t.run(ctx, c).Int()
	if err != nil {
		return 0, fmt.Errorf("mark shard %d of topic %s clean: %w", shard, t.name, err)
	}
	return left, nil
}

// Clean tells for each attended shard of a migrating placement whether it is
// clean: whether it was found so under that placement.
func (t *Topic) Clean(ctx context.Context, p Placement) ([]bool, error) {
	noted, err := t.rdb.HGet(ctx, t.placementKey(), "clean").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read clean shards of topic %s: %w", t.name, err)
	}
	of, marks, _ := strings.Cut(noted, ":")
	if of != p.String() {
		marks = ""
	}
	clean := make([]bool, p.Scanned())
	for i := range clean {
		clean[i] = p.Phase != Migrating || i < len(marks) && marks[i] == '1'
	}
	return clean, nil
}

// Topics lists the topics known, in order.
func (s *Store) Topics(ctx context.Context) ([]string, error) {
	names, err := s.rdb.SMembers(ctx, s.topicsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Forget takes a topic that was removed, or never had a placement, off the list of
// known ones, with its document; one that was made anew stays.
func (t *Topic) Forget(ctx context.Context, gone Placement) error {
	if err := t.rdb.SRem(ctx, t.topicsKey(), t.name).Err(); err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	was := ""
	if gone.Epoch > 0 {
		was = gone.String()
	}
	c := call{script: "forget", keys: []string{t.placementKey(), t.documentKey(), t.rateKey()}, args: []any{was}}
	forgotten, err := t.run(ctx, c).Int()
	if err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	if forgotten == 0 {
		return t.list(ctx)
	}
	return nil
}

// list puts the topic among the known ones.
func (t *Topic) list(ctx context.Context) error {
	return wrapIf(redisError(t.rdb.SAdd(ctx, t.topicsKey(), t.name).Err()), "list topic %s", t.name)
}

// Keep saves the topic's document and lists the topic among the known ones.
func (t *Topic) Keep(ctx context.Context, document []byte) error {
	if err := t.SaveDocument(ctx, document); err != nil {
		return err
	}
	return t.list(ctx)
}

// SaveDocument keeps the last good document of the topic, so that a fleet can
// start without the place the document came from.
func (t *Topic) SaveDocument(ctx context.Context, doc []byte) error {
	if err := t.rdb.Set(ctx, t.documentKey(), doc, 0).Err(); err != nil {
		return fmt.Errorf("save document of topic %s: %w", t.name, redisError(err))
	}
	return nil
}

// Document returns the last good document of the topic, nil if there is none.
func (t *Topic) Document(ctx context.Context) ([]byte, error) {
	doc, err := t.rdb.Get(ctx, t.documentKey()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read document of topic %s: %w", t.name, err)
	}
	return doc, nil
}
