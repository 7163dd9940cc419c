package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Lease names one leased task.
type Lease struct {
	ID     string
	Token  string
	member Member // in the index of groups, if the task is in one
}

// Settlement says what to do with leased tasks of a shard.
type Settlement struct {
	Settle  []Lease
	Release []Release
	Advance []Advance
}

// Settled has an error for each part of a settlement that wasn't carried out, or not certainly.
type Settled struct{ Settle, Release, Advance error }

// Settle carries out a settlement together with other calls to the shard's node, and passes its
// outcome to done. See Shard.Settle, Shard.Release and Shard.Advance.
func (c *Convoy) Settle(s Shard, node string, what Settlement, done func(Settled)) {
	settle, release := s.settleCalls(what.Settle, true), s.releaseCalls(what.Release)
	advance := s.advanceCalls(what.Advance)
	var calls []luascript.Call
	for _, p := range slices.Concat(settle, release, advance) {
		calls = append(calls, p.call)
	}
	if len(calls) == 0 {
		done(Settled{})
		return
	}
	c.add(node, calls, func(replies []luascript.Reply, _, _ time.Time) {
		var left []Lease
		take := func(parts []settling) (first error) {
			for _, p := range parts {
				_, gone, err := s.outcome(p, replies[0])
				replies, left, first = replies[1:], append(left, gone...), cmp.Or(first, err)
			}
			return first
		}
		all := Settled{take(settle), take(release), take(advance)}
		if len(left) == 0 {
			done(all)
			return
		}
		c.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), convoyTimeout)
			defer cancel()
			s.topic.leave(ctx, left)
			done(all)
		})
	})
}

// Settle removes delivered tasks of one shard that are still leased under their tokens,
// and returns how many. The leases of the others ran out and were taken over, or the
// tasks were cancelled, replaced or rescheduled meanwhile. It removes those in groups from the
// index too.
func (s Shard) Settle(ctx context.Context, leases []Lease) (int, error) {
	return s.carryOut(ctx, s.settleCalls(leases, true))
}

// RemoveExported removes tasks that another shard has imported, if they are still leased
// under the token of their export. It returns how many. It runs the script of Settle.
func (s Shard) RemoveExported(ctx context.Context, exported []Lease) (int, error) {
	return s.carryOut(ctx, s.settleCalls(exported, false))
}

// Release gives back tasks of one shard that are still leased under their tokens, and
// returns how many.
func (s Shard) Release(ctx context.Context, releases []Release) (int, error) {
	return s.carryOut(ctx, s.releaseCalls(releases))
}

// settling is a call for some leased tasks.
type settling struct {
	what  string
	call  luascript.Call
	tasks int
	// left are the tasks that end, and leave the index of groups. They stay in it if not all tasks of
	// the call were settled. Then a sweep finds out which of them are gone.
	left []Lease
}

// carryOut sends one call after the other, and returns how many tasks they settled.
func (s Shard) carryOut(ctx context.Context, parts []settling) (settled int, err error) {
	for _, p := range parts {
		n, left, err := s.outcome(p, s.topic.store.scripts.Run(ctx, p.call))
		if err != nil {
			return settled, err
		}
		settled += n
		s.topic.leave(ctx, left)
	}
	return settled, nil
}

// outcome returns how many tasks a call settled, and which of them leave the index of groups.
func (s Shard) outcome(p settling, reply luascript.Reply) (settled int, left []Lease, err error) {
	if p.call.Script == "release" {
		n, err := reply.Int()
		return int(n), nil, wrapIf(err, "%s in shard %d of topic %s", p.what, s.n, s.topic.name)
	}
	values := reply.Values()
	n, nowhere := int(values.Int()), values.Int() == 1
	if err := values.Err(); err != nil {
		return 0, nil, fmt.Errorf("%s in shard %d of topic %s: %w", p.what, s.n, s.topic.name, err)
	}
	if n < p.tasks || !nowhere {
		return n, nil, nil
	}
	return n, p.left, nil
}

// leave removes settled tasks from the index of groups. After an error some stay, for
// a sweep.
func (t *Topic) leave(ctx context.Context, settled []Lease) {
	if len(settled) == 0 {
		return
	}
	members := make([]Member, len(settled))
	for i, l := range settled {
		members[i] = l.member
	}
	_ = t.Leave(ctx, members)
}

func (s Shard) settleCalls(leases []Lease, delivered bool) (all []settling) {
	for some := range slices.Chunk(leases, MaxBatch) {
		p := settling{what: "settle", tasks: len(some)}
		p.call = luascript.Call{Script: "settle", Keys: s.taskKeys()[:3], Args: append([]any{delivered}, byToken(some)...)}
		for _, l := range some {
			if delivered && l.member.Group != "" {
				p.left = append(p.left, l)
			}
		}
		all = append(all, p)
	}
	return all
}

func (s Shard) releaseCalls(releases []Release) (all []settling) {
	for some := range slices.Chunk(releases, MaxBatch) {
		args := make([]any, 0, 6*len(some))
		for _, r := range some {
			args = append(args, r.Token, r.ID, r.delay(), r.Attempted, r.Redelivered, r.reason())
		}
		call := luascript.Call{Script: "release", Keys: []string{s.due(), s.tasks(), s.Wake(), s.fence()}, Args: args}
		all = append(all, settling{what: "release", tasks: len(some), call: call})
	}
	return all
}

// byToken returns the arguments of settle: each token, the number of its tasks, and their
// IDs. Most tasks that are settled at once come from one claim.
func byToken(leases []Lease) []any {
	var tokens []string
	ids := map[string][]any{}
	for _, l := range leases {
		if ids[l.Token] == nil {
			tokens = append(tokens, l.Token)
		}
		ids[l.Token] = append(ids[l.Token], l.ID)
	}
	args := make([]any, 0, 2*len(tokens)+len(leases))
	for _, t := range tokens {
		args = append(append(args, t, len(ids[t])), ids[t]...)
	}
	return args
}

// Release says how one leased task is given back.
type Release struct {
	Lease
	// Delay until the task is due again; 0: as soon as possible, in its old place.
	Delay time.Duration
	// Park it instead.
	Park bool
	// Exported says that an export made the lease. The task returns unchanged to its
	// score from before, and the fields below mean nothing.
	Exported bool
	// Attempted counts an attempt: the broker returned or refused the message.
	Attempted bool
	// Redelivered marks the task: a message of it may have reached the broker.
	Redelivered bool
	// Reason is kept with the task; "" keeps the last one.
	Reason string
}

// maxReason bounds what is kept of a reason, in bytes.
const maxReason = 512

func (r Release) delay() string {
	switch {
	case r.Exported:
		return "back"
	case r.Park:
		return "park"
	case r.Delay <= 0:
		return "0"
	}
	return strconv.FormatInt(max(r.Delay.Milliseconds(), 1), 10)
}

func (r Release) reason() string {
	if len(r.Reason) > maxReason {
		return r.Reason[:maxReason]
	}
	return r.Reason
}
