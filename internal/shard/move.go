package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Loan is a batch of misplaced tasks leased to a mover.
type Loan struct {
	Shard int
	Token string
	// Deadline is Redis's ms at which the lease ends.
	Deadline int64
	Tasks    []LentTask
}

// LentTask is one task on loan, as it is to be adopted elsewhere.
type LentTask struct {
	ID     string
	score  string
	record string
}

// Lending is one request for a loan; see Claim for Claimant and Request.
type Lending struct {
	Shard    int
	Claimant string
	Request  string
	Lease    time.Duration
	// Soon leaves tasks that are due within it, or were within the last
	// second, to be delivered where they lie.
	Soon time.Duration
	IDs  []string
}

// Lend leases those of the tasks that wait or are parked to a mover.
func (t *Topic) Lend(ctx context.Context, p Placement, l Lending) (Loan, error) {
	args := make([]any, 4, 4+len(l.IDs))
	args[0], args[1], args[2], args[3] = p.String(), l.Request, l.Lease.Milliseconds(), l.Soon.Milliseconds()
	for _, id := range l.IDs {
		args = append(args, id)
	}
	keys := t.Shard(l.Shard).taskKeys(t.Shard(l.Shard).memory(l.Claimant))
	_, rest, err := answer(t.run(ctx, call{script: "lend", keys: keys, args: args}))
	if err != nil {
		return Loan{}, fmt.Errorf("lend from shard %d of topic %s: %w", l.Shard, t.name, err)
	}
	loan := Loan{Shard: l.Shard}
	loan.Token, _ = rest[0].(string)
	loan.Deadline, _ = rest[1].(int64)
	for i := 2; i+2 < len(rest); i += 3 {
		var lent LentTask
		lent.ID, _ = rest[i].(string)
		lent.score, _ = rest[i+1].(string)
		lent.record, _ = rest[i+2].(string)
		loan.Tasks = append(loan.Tasks, lent)
	}
	return loan, nil
}

// Share is what one shard is to adopt of a loan.
type Share struct {
	Shard int
	Tasks []LentTask
}

// Adopted is what became of one share.
type Adopted struct {
	// Tasks that were new to the shard.
	Tasks int
	// Err is for the whole share: a *MovedError, ErrLate, or Redis's. Without one
	// all tasks of the share, also those skipped, are to be settled where they
	// were lent.
	Err error
}

// Adopt has shards take tasks on loan over, in one round trip.
func (t *Topic) Adopt(ctx context.Context, p Placement, deadline int64, shares ...Share) []Adopted {
	calls, placement := make([]call, len(shares)), p.String()
	for i, s := range shares {
		args := make([]any, 2, 2+3*len(s.Tasks))
		args[0], args[1] = placement, deadline
		for _, l := range s.Tasks {
			args = append(args, l.ID, l.score, l.record)
		}
		calls[i] = call{script: "adopt", keys: t.Shard(s.Shard).taskKeys(t.Shard(s.Shard).Wake()), args: args, gate: t.Shard(s.Shard).gate()}
	}
	results := make([]Adopted, len(shares))
	for i, cmd := range t.runAll(ctx, calls) {
		_, rest, err := answer(cmd)
		if err != nil {
			results[i].Err = fmt.Errorf("adopt into shard %d of topic %s: %w", shares[i].Shard, t.name, err)
			continue
		}
		n, _ := rest[0].(int64)
		results[i].Tasks = int(n)
	}
	return results
}

// Pass is how far the look through a shard for misplaced tasks has come.
type Pass struct {
	Number string
	// Count is how many passes this shard has seen in a row, this one included.
	Count  int
	Cursor uint64
	// Clean: the pass that has just ended met nothing misplaced that stayed.
	Clean bool
}

// Pass reads where the look through a shard stands; p must be the placement the
// shard was touched with.
func (s Shard) Pass(ctx context.Context, p Placement) (Pass, error) {
	return s.look(ctx, p, "", 0, 0, false)
}

// Look notes that the look through a shard came from a pass's cursor to another,
// and answers where it stands: elsewhere, if another mover was faster.
func (s Shard) Look(ctx context.Context, p Placement, from Pass, to uint64, dirty bool) (Pass, error) {
	return s.look(ctx, p, from.Number, from.Cursor, to, dirty)
}

func (s Shard) look(ctx context.Context, p Placement, pass string, from, to uint64, dirty bool) (Pass, error) {
	args := []any{p.String(), pass, strconv.FormatUint(from, 10), strconv.FormatUint(to, 10), oneIf(dirty)}
	c := call{script: "look", keys: []string{s.gate(), s.ledger()}, args: args, gate: s.gate()}
	_, rest, err := answer(s.topic.run(ctx, c))
	if err != nil {
		return Pass{}, fmt.Errorf("look through shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	var at Pass
	at.Number, _ = rest[0].(string)
	_, count, _ := strings.Cut(at.Number, "-")
	at.Count, _ = strconv.Atoi(count)
	text, _ := rest[1].(string)
	at.Clean = rest[2] == int64(1)
	at.Cursor, err = strconv.ParseUint(text, 10, 64)
	return at, err
}

// Scan returns IDs of a shard from a cursor on, in no order, about count of
// them, and the cursor to go on from; 0: the end. Every task that is in the
// shard from the first call to the last is met at least once (SCAN's guarantee).
func (s Shard) Scan(ctx context.Context, cursor uint64, count int) ([]string, uint64, error) {
	pairs, next, err := s.topic.rdb.ZScan(ctx, s.due(), cursor, "", int64(count)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("scan shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	ids := make([]string, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		ids = append(ids, pairs[i])
	}
	return ids, next, nil
}

// TryMove asks to be a shard's only mover for a while, so that two workers don't
// look through it at once. It saves work; safety doesn't rest on it. Who is the
// mover and asks again, for its answer was lost, is told so.
func (s Shard) TryMove(ctx context.Context, claimant string, hold time.Duration) (bool, error) {
	is, err := s.topic.rdb.SetArgs(ctx, s.key("mover"), claimant, redis.SetArgs{Mode: "NX", Get: true, TTL: hold}).Result()
	if errors.Is(err, redis.Nil) { // there was none
		return true, nil
	}
	return err == nil && is == claimant, wrapIf(err, "become mover of shard %d of topic %s", s.n, s.topic.name)
}

// StopMove lets the next worker move on. If the claimant is not the shard's mover it
// changes nothing.
func (s Shard) StopMove(ctx context.Context, claimant string) error {
	err := s.topic.run(ctx, call{script: "yield", keys: []string{s.key("mover")}, args: []any{claimant}}).Err()
	return wrapIf(err, "stop moving shard %d of topic %s", s.n, s.topic.name)
}
