package shard

import (
	"context"
	"fmt"
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

// Settle removes delivered tasks of one shard that are still leased under their tokens,
// and returns how many. The leases of the others ran out and were taken over, or the
// tasks were cancelled, replaced or rescheduled meanwhile. It removes those in groups from the
// index too.
func (s Shard) Settle(ctx context.Context, leases []Lease) (int, error) {
	return s.remove(ctx, leases, true)
}

func (s Shard) remove(ctx context.Context, leases []Lease, delivered bool) (int, error) {
	settled := 0
	for len(leases) > 0 {
		n := min(len(leases), MaxBatch)
		args, some := append([]any{delivered}, byToken(leases[:n])...), leases[:n]
		leases = leases[n:]
		call := luascript.Call{Script: "settle", Keys: s.taskKeys()[:3], Args: args}
		done, nowhere, err := s.settled(ctx, call)
		if err != nil {
			return settled, fmt.Errorf("settle in shard %d of topic %s: %w", s.n, s.topic.name, err)
		}
		settled += done
		if delivered && done == n && nowhere { // else a sweep finds out which of them are gone
			s.topic.leave(ctx, some)
		}
	}
	return settled, nil
}

// settled runs a script that settles tasks. nowhere reports that no other shard has a version of
// one that ended.
func (s Shard) settled(ctx context.Context, call luascript.Call) (n int, nowhere bool, err error) {
	reply := s.topic.store.scripts.Run(ctx, call).Values()
	n, nowhere = int(reply.Int()), reply.Int() == 1
	return n, nowhere, reply.Err()
}

// leave removes settled tasks from the index of groups. After an error some stay, for
// a sweep.
func (t *Topic) leave(ctx context.Context, settled []Lease) {
	var members []Member
	for _, l := range settled {
		if l.member.Group != "" {
			members = append(members, l.member)
		}
	}
	_ = t.Leave(ctx, members)
}

// RemoveExported removes tasks that another shard has imported, if they are still leased
// under the token of their export. It returns how many. It runs the script of Settle.
func (s Shard) RemoveExported(ctx context.Context, exported []Lease) (int, error) {
	return s.remove(ctx, exported, false)
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

// Release gives back tasks of one shard that are still leased under their tokens, and
// returns how many.
func (s Shard) Release(ctx context.Context, releases []Release) (int, error) {
	released := 0
	for len(releases) > 0 {
		n := min(len(releases), MaxBatch)
		args := make([]any, 0, 6*n)
		for _, r := range releases[:n] {
			args = append(args, r.Token, r.ID, r.delay(), r.Attempted, r.Redelivered, r.reason())
		}
		releases = releases[n:]
		keys := []string{s.due(), s.tasks(), s.Wake(), s.fence()}
		done, err := s.topic.store.scripts.Run(ctx, luascript.Call{Script: "release", Keys: keys, Args: args}).Int()
		if err != nil {
			return released, fmt.Errorf("release in shard %d of topic %s: %w", s.n, s.topic.name, err)
		}
		released += int(done)
	}
	return released, nil
}

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
