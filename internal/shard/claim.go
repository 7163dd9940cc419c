package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// claimBudget bounds the records of one claim, in bytes, if the claim itself sets no
// bound.
const claimBudget = 1 << 20

// Claimed is one leased task.
type Claimed struct {
	task.Task
	// Shard and Token name the lease: the task is settled or released only with both.
	Shard int
	Token string
	// SinceStored is the number of this attempt, from 1, since a producer or a consumer
	// stored the task. So it counts what RabbitMQ returned or refused, and no attempt of a
	// handler.
	SinceStored int
	// AMQPBytes counts the bytes of routing key, properties and headers in the record, if
	// the task has AMQP.
	AMQPBytes int
	rule      recurrence.Rule // of a recurring task
	member    Member          // in the index of groups
}

// Lease returns the lease of the task.
func (c *Claimed) Lease() Lease {
	return Lease{ID: c.ID, Token: c.Token, member: c.member}
}

// Batch is the answer to a claim.
type Batch struct {
	Tasks []Claimed
	// Bad are leased records that this version can't read, with the reason.
	Bad []BadRecord
	// Now is Redis's clock at the claim, to the microsecond.
	Now time.Time
	// Next is when the shard needs attention again. It may lie in the past: there is
	// more. Zero: not before a task is put there.
	Next time.Time
	// Skipped counts tasks that could not be claimed. Tasks without a record are now
	// parked; records of a newer format are left alone for a minute.
	Skipped int
	// Polled is until when another claimant is the shard's primary, by Redis's clock;
	// zero: no other claimant is. Until then this claimant gets only tasks that the
	// primary leaves for longer than the claim's grace.
	Polled time.Time
}

// BadRecord is a leased task whose record could not be read.
type BadRecord struct {
	Claimed
	Err error
}

// Claim is one request for a batch. The same Claimant and Request, sent again before the
// lease ends, gets the same batch. An older Request of the same Claimant is refused.
type Claim struct {
	Claimant string // names one worker
	Request  string // a number in decimal, greater than the claimant's last
	Limit    int    // 0 asks for Next alone; at most MaxBatch
	// Bytes bounds the records of the answer, but a larger record may be the only one.
	// Defaults to 1 MiB.
	Bytes int
	Lease time.Duration
	// Stay is how much longer the claimant polls the shard. When several poll a shard,
	// the last to claim is the primary while it stays. It alone claims what comes due, so
	// that a task costs one claim. The others claim only what has been due for longer
	// than Grace, which covers a dead primary (docs/adr/0014).
	Stay, Grace time.Duration
}

// maxLate limits how often one claim is sent again because it was late.
const maxLate = 100

// errOlder says that a later request of the same claimant was carried out already.
var errOlder = errors.New("an older request than the last one")

// Claim leases what is due in a shard. A copy of the call that was held up in a socket
// leases nothing, since nobody would forward the tasks. If the call itself was held up
// for that long, Claim sends it again.
func (s Shard) Claim(ctx context.Context, c Claim) (Batch, error) {
	for tries := 1; ; tries++ {
		deadline, err := s.topic.store.scripts.Deadline(ctx)
		if err != nil {
			return Batch{}, err
		}
		b, err := s.claimBy(ctx, c, deadline)
		if !errors.Is(err, ErrLate) || tries == maxLate {
			return b, err
		}
		s.topic.store.scripts.ForgetClock()
	}
}

func (s Shard) claimBy(ctx context.Context, c Claim, deadline int64) (Batch, error) {
	keys := []string{s.due(), s.tasks(), s.fence(), s.memory(c.Claimant)}
	args := []any{c.Request, min(c.Limit, MaxBatch), c.Lease.Milliseconds(), cmp.Or(c.Bytes, claimBudget), deadline,
		max(c.Stay, 0).Milliseconds(), c.Grace.Milliseconds()}
	b, err := s.claimed(s.topic.store.scripts.Run(ctx, luascript.Call{Script: "claim", Keys: keys, Args: args}).Values())
	return b, wrapIf(err, "claim from shard %d of topic %s", s.n, s.topic.name)
}

func (s Shard) claimed(reply *luascript.Values) (Batch, error) {
	token := reply.Text()
	switch token {
	case "late":
		return Batch{}, ErrLate
	case "older":
		return Batch{}, fmt.Errorf("%w: %s", errOlder, reply.Text())
	}
	b := Batch{Now: time.UnixMicro(reply.Int())}
	if next := reply.Int(); next >= 0 {
		b.Next = time.UnixMilli(next)
	}
	b.Skipped = int(reply.Int())
	if polled := reply.Int(); polled > 0 {
		b.Polled = time.UnixMilli(polled)
	}
	b.Tasks = make([]Claimed, 0, reply.Left()/2)
	for reply.Left() > 0 {
		id, record := reply.Text(), reply.Text()
		r, err := DecodeRecord(s.topic.name, id, record)
		var rule recurrence.Rule
		if err == nil && r.Recurrence != nil {
			rule, err = recurrence.Of(*r.Recurrence)
		}
		claimed := Claimed{Task: r.Task, Shard: s.n, Token: token, SinceStored: r.Attempt - r.before,
			rule: rule, member: r.Member()}
		if r.AMQP != nil {
			claimed.AMQPBytes = len(record) - recordHead - len(r.Payload)
		}
		if err != nil {
			b.Bad = append(b.Bad, BadRecord{claimed, err})
			continue
		}
		b.Tasks = append(b.Tasks, claimed)
	}
	if reply.Err() != nil {
		return Batch{}, reply.Err()
	}
	return b, nil
}
