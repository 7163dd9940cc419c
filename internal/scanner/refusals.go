package scanner

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/shard"
)

// topicHealth records what keeps Redis from serving one topic, for readiness, status and
// the log. It is safe for concurrent use.
type topicHealth struct {
	log     *slog.Logger
	metrics *topicMetrics
	errors  func(operation string) // counts an error
	// unsettled logs that an outcome wasn't written to Redis.
	unsettled *ratelog.Logger

	outage   atomic.Pointer[outage] // why the topic waits for Redis; nil: it does not
	refusals refusals               // of claims and moves by shard, of other operations under everyShard.
	worked   sync.Map               // whether each operation succeeded when it was last tried, by its key
}

// Fails notes that Redis refuses an operation in one shard. It logs when that begins, and
// counts each time.
func (h *topicHealth) Fails(ctx context.Context, at int, operation string, err error) {
	h.errors(operation)
	h.metrics.shardError(at)
	h.worked.Store(refusal{at, operation}, false)
	if h.refusals.record(refusal{at, operation}, true, err) {
		h.log.WarnContext(ctx, "redis does not serve this shard", "shard", at, "operation", operation, "error",
			connect.Advised("redis", err))
	}
}

// Works notes that an operation in one shard succeeded.
func (h *topicHealth) Works(ctx context.Context, at int, operation string) {
	h.worked.Store(refusal{at, operation}, true)
	if h.refusals.record(refusal{at, operation}, false, nil) {
		h.log.InfoContext(ctx, "redis serves this shard again", "shard", at, "operation", operation)
	}
}

// Placed notes M of a placement that is in force now.
func (h *topicHealth) Placed(shards int) { h.metrics.placed(shards) }

// Tried notes the outcome of an operation that belongs to no single shard. It counts an
// error, and reports whether the log should say that Redis begins or ends to deny it.
func (h *topicHealth) Tried(operation string, err error) (news bool) {
	if err != nil {
		h.errors(operation)
	}
	return h.refusals.recordDenied(operation, err)
}

// settled notes the outcome of each attempt of the settler to write outcomes to Redis.
func (h *topicHealth) settled(operation string, err error) {
	if h.Tried(operation, err); err != nil {
		h.unsettled.Log(context.Background(), "operation", operation, "error", connect.Advised("redis", err))
	}
}

// lastClaim reports whether there was a claim from a shard, and whether the last one succeeded.
func (h *topicHealth) lastClaim(at int) (worked, known bool) {
	last, known := h.worked.Load(refusal{at, "claim"})
	return last == true, known
}

// listens notes whether Redis lets this scanner listen for new tasks; nil means that it
// does. If not, a task that is due soon may wait for a tick.
func (h *topicHealth) listens(err error) {
	ctx := context.Background()
	switch news := h.Tried("listen", err); {
	case news && err != nil:
		h.log.WarnContext(ctx, "redis does not let this scanner listen for new tasks", "error", connect.Advised("redis", err))
	case news:
		h.log.InfoContext(ctx, "redis lets this scanner listen for new tasks again")
	}
}

// refusedShards returns the shards that Redis refuses to serve, as refusals.shards does. A
// worker that polls a shard tries again within seconds, and at each tick. If it hasn't for
// some ticks, then other scanners poll the shard, and they know more.
func (t *topic) refusedShards() refusedShards {
	return t.health.refusals.shards(t.scanned(), 3*t.inForce.Settings().Tick+5*time.Second)
}

// refusals are the operations that Redis refuses with errors that no repeat fixes. An
// operation stays here until it succeeds. It may fail in one shard, because of a key of
// the wrong type or a missing right, while the other shards are served. Or it may fail in
// all shards, because of a missing right or a wrong password.
type refusals struct {
	mu  sync.Mutex
	why map[refusal]reason
}

type refusal struct {
	shard     int // or everyShard
	operation string
}

// everyShard stands for operations that belong to no single shard.
const everyShard = -1

type reason struct {
	text   string
	denied bool // because of a missing right or a wrong password
	logged bool
	tried  time.Time
}

// refusalsLogged bounds how many refusals in a topic's shards are logged one by one. All
// of 4,096 shards may lack the same right.
const refusalsLogged = 10

// record records why an operation is refused, or removes the record if it isn't. It reports
// whether the log should say so.
func (r *refusals) record(at refusal, refused bool, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, there := r.why[at]
	if !refused {
		delete(r.why, at)
		return before.logged
	}
	if r.why == nil {
		r.why = map[refusal]reason{}
	}
	logged := before.logged || !there && (at.shard == everyShard || len(r.why) < refusalsLogged)
	r.why[at] = reason{connect.Advised("redis", err), shard.Denied(err), logged, time.Now()}
	return !there && logged
}

// recordDenied records why an operation that belongs to no single shard was denied. Any
// other outcome removes the record. It reports whether the log should say so.
func (r *refusals) recordDenied(operation string, err error) (news bool) {
	return r.record(refusal{everyShard, operation}, shard.Denied(err), err)
}

// denied returns the denied operations that belong to no single shard; "" if there are
// none.
func (r *refusals) denied() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for at, why := range r.why {
		if at.shard == everyShard {
			all = append(all, at.operation+" denied: "+why.text)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// refusedShards are shards that Redis refuses to serve. why is the reason for the first one.
// denied reports whether a right is missing or a password is wrong in any of them.
type refusedShards struct {
	numbers []int
	why     string
	denied  bool
}

// shards returns the refused shards among the first n, in order. It forgets claims that
// were last tried longer than keep ago.
func (r *refusals) shards(n int, keep time.Duration) (out refusedShards) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []refusal
	for at, why := range r.why {
		switch {
		case at.shard == everyShard || at.shard >= n: // M may have become smaller
		case at.operation == "claim" && time.Since(why.tried) > keep:
			delete(r.why, at)
		default:
			all = append(all, at)
			out.denied = out.denied || why.denied
		}
	}
	if len(all) == 0 {
		return out
	}
	slices.SortFunc(all, func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.operation, b.operation))
	})
	out.why = r.why[all[0]].text
	for _, at := range all {
		out.numbers = append(out.numbers, at.shard)
	}
	out.numbers = slices.Compact(out.numbers)
	return out
}

// adviceOnRedis returns what to do about an error of Redis.
func adviceOnRedis(text string) string { return connect.Advice("redis", text) }

var _ reshard.Report = (*topicHealth)(nil)
