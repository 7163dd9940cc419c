package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Exported is a batch of misplaced tasks leased to a mover.
type Exported struct {
	Shard int
	Token string
	// Deadline is the Redis time in ms at which the lease ends.
	Deadline int64
	Tasks    []ExportedTask
	// Left is how many IDs at the end were not looked at: the budget was used up.
	Left int
}

// ExportedTask is one exported task, ready to be imported elsewhere.
type ExportedTask struct {
	ID     string
	score  string
	record string
}

// Export is one request for an export; see Claim for Claimant and Request.
type Export struct {
	Claimant string
	Request  string
	Lease    time.Duration
	// Soon leaves tasks to be delivered where they lie: those due within it, or due
	// within the last second.
	Soon time.Duration
	// Bytes bounds the records of the answer. The first task is exported even if it is
	// larger. Defaults to 1 MiB.
	Bytes int
	IDs   []string
}

// exportBudget bounds the records of one export, and so of its imports, in bytes.
const exportBudget = 1 << 20

// Export leases tasks to a mover, as many of l.IDs as the budget allows. It leaves out
// tasks that are leased, missing or due soon.
func (s Shard) Export(ctx context.Context, p Placement, l Export) (Exported, error) {
	args := make([]any, 5, 5+len(l.IDs))
	args[0], args[1], args[2], args[3] = p.String(), l.Request, l.Lease.Milliseconds(), l.Soon.Milliseconds()
	args[4] = cmp.Or(l.Bytes, exportBudget)
	for _, id := range l.IDs {
		args = append(args, id)
	}
	keys := s.taskKeys(s.memory(l.Claimant))
	_, rest, err := answer(s.topic.store.scripts.Run(ctx, luascript.Call{Script: "export", Keys: keys, Args: args}))
	export := Exported{Shard: s.n, Token: rest.Text(), Deadline: rest.Int(), Left: int(rest.Int())}
	for rest.Left() > 0 {
		export.Tasks = append(export.Tasks, ExportedTask{ID: rest.Text(), score: rest.Text(), record: rest.Text()})
	}
	if err = cmp.Or(err, rest.Err()); err != nil {
		return Exported{}, fmt.Errorf("export from shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	return export, nil
}

// Share is the part of an export that one shard is to import.
type Share struct {
	Shard int
	Tasks []ExportedTask
}

// Imported is the result for one share.
type Imported struct {
	// Tasks is how many tasks were new to the shard.
	Tasks int
	// Err is for the whole share: a *MovedError, ErrLate, or Redis's. If it is nil, all
	// tasks of the share must be settled where they were exported, skipped ones too.
	Err error
}

// Import has shards take over exported tasks, in one round trip. The budget of the export
// bounds what Import sends.
func (t *Topic) Import(ctx context.Context, p Placement, deadline int64, shares ...Share) []Imported {
	calls, placement := make([]luascript.Call, len(shares)), p.String()
	for i, s := range shares {
		args := make([]any, 2, 2+3*len(s.Tasks))
		args[0], args[1] = placement, deadline
		for _, l := range s.Tasks {
			args = append(args, l.ID, l.score, l.record)
		}
		calls[i] = luascript.Call{Script: "import", Keys: t.Shard(s.Shard).taskKeys(t.Shard(s.Shard).Wake()), Args: args,
			ReplicasKey: t.Shard(s.Shard).fence()}
	}
	results := make([]Imported, len(shares))
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		_, rest, err := answer(reply)
		n := rest.Int()
		if err = cmp.Or(err, rest.Err()); err != nil {
			results[i].Err = fmt.Errorf("import into shard %d of topic %s: %w", shares[i].Shard, t.name, err)
			continue
		}
		results[i].Tasks = int(n)
	}
	return results
}

// Pass is how far a shard has been scanned for misplaced tasks.
type Pass struct {
	Number string
	// Count is how many passes this shard has seen in a row, this one included.
	Count  int
	Cursor uint64
	// Clean: the pass that has just ended met no misplaced task that stayed.
	Clean bool
}

// Pass reads how far a shard has been scanned; p must be the placement the shard was
// fenced with.
func (s Shard) Pass(ctx context.Context, p Placement) (Pass, error) {
	return s.scanPass(ctx, p, "", 0, 0, false)
}

// ScanPass notes that a caller scanned the shard from one cursor to another. It returns
// where the pass is now: elsewhere if another mover was faster. dirty says that a
// misplaced task was met and is still there.
func (s Shard) ScanPass(ctx context.Context, p Placement, from Pass, to uint64, dirty bool) (Pass, error) {
	return s.scanPass(ctx, p, from.Number, from.Cursor, to, dirty)
}

func (s Shard) scanPass(ctx context.Context, p Placement, pass string, from, to uint64, dirty bool) (Pass, error) {
	args := []any{p.String(), pass, strconv.FormatUint(from, 10), strconv.FormatUint(to, 10), dirty}
	c := luascript.Call{Script: "scan_pass", Keys: []string{s.fence(), s.handled()}, Args: args, ReplicasKey: s.fence()}
	_, rest, err := answer(s.topic.store.scripts.Run(ctx, c))
	at := Pass{Number: rest.Text()}
	cursor := rest.Text()
	at.Clean = rest.Int() == 1
	if err = cmp.Or(err, rest.Err()); err != nil {
		return Pass{}, fmt.Errorf("look through shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	_, count, _ := strings.Cut(at.Number, "-")
	at.Count, _ = strconv.Atoi(count)
	at.Cursor, err = strconv.ParseUint(cursor, 10, 64)
	return at, err
}

// Scan returns about count IDs of a shard from a cursor on, in no order, and the next
// cursor; 0 is the end. It returns each task that is in the shard from the first call to
// the last at least once (SCAN's guarantee).
func (s Shard) Scan(ctx context.Context, cursor uint64, count int) ([]string, uint64, error) {
	return s.scan(ctx, cursor, "", count)
}

// scan is Scan for the IDs that match a pattern of Redis; "" means all.
func (s Shard) scan(ctx context.Context, cursor uint64, pattern string, count int) ([]string, uint64, error) {
	pairs, next, err := s.topic.store.Client(ctx).ZScan(ctx, s.due(), cursor, pattern, int64(count)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("scan shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	ids := make([]string, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		ids = append(ids, pairs[i])
	}
	return ids, next, nil
}

// TryMove asks to be the shard's only mover for the time hold, and reports whether the
// claimant is. It keeps two workers from scanning the shard at once; safety doesn't
// depend on it. Repeating the call after a lost reply returns true.
func (s Shard) TryMove(ctx context.Context, claimant string, hold time.Duration) (bool, error) {
	args := redis.SetArgs{Mode: "NX", Get: true, TTL: hold}
	is, err := s.topic.store.Client(ctx).SetArgs(ctx, s.key("mover"), claimant, args).Result()
	if errors.Is(err, redis.Nil) { // there was none
		return true, nil
	}
	return err == nil && is == claimant, wrapIf(err, "become mover of shard %d of topic %s", s.n, s.topic.name)
}

// StopMove lets the next worker be the mover. It changes nothing if the claimant is not
// the shard's mover.
func (s Shard) StopMove(ctx context.Context, claimant string) error {
	call := luascript.Call{Script: "stop_move", Keys: []string{s.key("mover")}, Args: []any{claimant}}
	err := s.topic.store.scripts.Run(ctx, call).Err()
	return wrapIf(err, "stop moving shard %d of topic %s", s.n, s.topic.name)
}

// MarkClean notes that a shard holds nothing misplaced under p. It returns how many
// shards are not clean, or -1 if p is no longer the placement.
func (t *Topic) MarkClean(ctx context.Context, p Placement, shard int) (left int, err error) {
	args := []any{p.String(), shard, p.Scanned()}
	c := luascript.Call{Script: "mark_clean", Keys: []string{t.placementKey()}, Args: args}
	n, err := t.store.scripts.Run(ctx, c).Int()
	return int(n), wrapIf(err, "mark shard %d of topic %s clean", shard, t.name)
}

// Clean returns for each shard that p polls whether it is clean. A migrating placement's
// shard is clean if it was found so under that placement.
func (t *Topic) Clean(ctx context.Context, p Placement) ([]bool, error) {
	noted, err := t.store.Client(ctx).HGet(ctx, t.placementKey(), "clean").Result()
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

// Progress is how far a change of the shard count has come.
type Progress struct {
	// Since is when the change began, by Redis's clock.
	Since time.Time
	// Moved is how many tasks were moved so far.
	Moved int64
	// Misplaced is how many tasks must still be moved or delivered. They are counted in
	// small shards and estimated from samples in large ones. It is at least 1 while a large
	// shard isn't clean.
	Misplaced int64
	// Clean is how many shards are clean, of Shards.
	Clean, Shards int
}

// Rate returns how many tasks were moved a second, on average since the change began.
func (p Progress) Rate(now time.Time) float64 {
	if took := now.Sub(p.Since).Seconds(); took > 0 {
		return float64(p.Moved) / took
	}
	return 0
}

// Left returns how long the change will still take at that rate; 0 if that isn't known.
func (p Progress) Left(now time.Time) time.Duration {
	rate := p.Rate(now)
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(p.Misplaced) / rate * float64(time.Second))
}

// progressSample is how many tasks of a shard are sampled to estimate how many are
// misplaced.
const progressSample = 64

// Progress reads how far the change under p has come. It leaves out shards that can't be
// read; an *UnreadableError names them.
func (t *Topic) Progress(ctx context.Context, p Placement) (Progress, error) {
	clean, err := t.Clean(ctx, p)
	if err != nil {
		return Progress{}, err
	}
	since, err := t.store.Client(ctx).HGet(ctx, t.placementKey(), "since").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Progress{}, fmt.Errorf("read when the change of topic %s began: %w", t.name, err)
	}
	out := Progress{Since: time.UnixMilli(since), Shards: len(clean)}
	pipe := t.store.Client(ctx).Pipeline()
	fences := make([]*redis.SliceCmd, len(clean))
	counts := make([]*redis.IntCmd, len(clean))
	samples := make([]*redis.StringSliceCmd, len(clean))
	for i, is := range clean {
		fences[i] = pipe.HMGet(ctx, t.Shard(i).fence(), "placement", "moved")
		if is {
			out.Clean++
			continue
		}
		counts[i] = pipe.ZCard(ctx, t.Shard(i).due())
		samples[i] = pipe.ZRandMember(ctx, t.Shard(i).due(), progressSample)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	failed := map[int]error{}
	least := int64(0)
	for i := range clean {
		moved, err := movedUnder(fences[i], p)
		out.Moved += moved
		if samples[i] != nil {
			out.Misplaced += estimate(counts[i].Val(), samples[i].Val(), i, p)
			if counts[i].Val() > progressSample {
				least = 1 // a sample rarely has the last one
			}
			err = errors.Join(err, counts[i].Err(), samples[i].Err())
		}
		if err != nil {
			failed[i] = fmt.Errorf("read progress of shard %d of topic %s: %w", i, t.name, err)
		}
	}
	out.Misplaced = max(out.Misplaced, least)
	return out, t.LeftOut(len(clean), failed)
}

// movedUnder returns how many tasks a fence counts as moved under p.
func movedUnder(fence *redis.SliceCmd, p Placement) (int64, error) {
	var noted struct {
		Placement string `redis:"placement"`
		Moved     int64  `redis:"moved"`
	}
	if err := fence.Scan(&noted); err != nil || noted.Placement != p.String() {
		return 0, err
	}
	return noted.Moved, nil
}

// estimate returns how many of count tasks are misplaced, judging by a sample of them.
func estimate(count int64, sample []string, shard int, p Placement) int64 {
	if len(sample) == 0 {
		return 0
	}
	out := int64(0)
	for _, id := range sample {
		if p.New(id) != shard {
			out++
		}
	}
	return out * count / int64(len(sample))
}
