package consumer

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// chainWindow is how long the order of the deliveries of a chain is known if the consumer
// remembers nothing else.
const chainWindow = 24 * time.Hour

// store has a consumer's calls to Redis. They concern the delivery history of an ID and the
// task in its shard.
type store struct {
	*shard.Store
	routers *router.Routers
	window  time.Duration    // negative: nothing is remembered
	clock   func() time.Time // the consumer's

	mu      sync.Mutex
	removed map[string]time.Time // by topic: when it was first met removed.
	met     map[string]bool      // topics that were served when their first delivery came.
	silent  time.Time            // when Redis last didn't say whether a topic is served.
}

// silentFor is how long Redis isn't asked again whether a topic is served, after it gave no
// answer. Meanwhile the topic's deliveries are handled.
const silentFor = 5 * time.Second

// served returns task.ErrUnknownTopic if no scanner has served the topic under this
// prefix in this Redis: then its message comes from scanners that have another. It asks
// once a topic. A topic that was removed is nil: it was served here.
func (s *store) served(ctx context.Context, topic string) error {
	s.mu.Lock()
	skip := s.met[topic] || time.Since(s.silent) < silentFor
	s.mu.Unlock()
	if skip {
		return nil
	}
	p, err := s.Topic(topic).Placement(ctx)
	if errors.Is(err, task.ErrUnknownTopic) && p.Phase != shard.Removed {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || p.Phase == shard.Removed {
		s.met[topic] = true
	} else {
		s.silent = time.Now()
	}
	return nil
}

func (s *store) remembers() bool { return s.window > 0 }

// begin asks what is to be done with a delivery. A first attempt of what its producer
// stored is handled unasked where nothing is remembered. Not so a next step, or what was
// parked and replayed, whose attempts count from 1 again: next, from shard.HeaderNext.
func (s *store) begin(ctx context.Context, t *task.Task, next bool) (shard.Disposition, error) {
	if !s.remembers() && t.Attempt == 1 && !next {
		return shard.Run, nil
	}
	return s.Topic(t.Topic).CheckDelivery(ctx, delivered(t), max(s.window, 0))
}

func delivered(t *task.Task) shard.Delivered {
	return shard.Delivered{ID: t.ID, Due: t.Due.UnixMilli(), Scheduled: t.Scheduled.UnixMilli()}
}

// done remembers a delivery, if anything is remembered.
func (s *store) done(ctx context.Context, t *task.Task) error {
	if !s.remembers() {
		return nil
	}
	return s.Topic(t.Topic).Done(ctx, t.ID, t.Due.UnixMilli(), s.window)
}

// following is the retry or next step that follows a delivery.
type following struct {
	when     task.When     // unless it is parked
	local    time.Time     // when by the consumer's clock; zero: by Redis's alone
	least    time.Duration // from now on, at least; negative: none
	park     bool
	attempts int // to count on from
	reason   string
	payload  []byte
	op       shard.Op // of storing it, the same for each try
}

// due is when f is due, in ms, seen from now by Redis's clock and by the consumer's.
func (f following) due(now int64, here time.Time) int64 {
	due := f.when.Time(time.UnixMilli(now)).UnixMilli()
	if !f.local.IsZero() {
		due = max(due, now+f.local.Sub(here).Milliseconds())
	}
	return max(due, now+max(f.least, 0).Milliseconds())
}

// permit says whether something may follow a delivery, and when that is due, in ms.
type permit struct {
	allowed bool // false: the producer cancelled or replaced the task
	due     int64
	moved   bool // the producer rescheduled the task meanwhile, to due
}

// allow asks whether f may follow the delivery of t, and when it is due.
func (s *store) allow(ctx context.Context, t *task.Task, f following) (at permit, err error) {
	var next int64
	if !f.park {
		now, err := s.Now(ctx)
		if err != nil {
			return permit{}, err
		}
		next = max(f.due(notBefore(now, t.Due.UnixMilli()), s.clock()), t.Due.UnixMilli()+1)
	}
	at.due, at.allowed, err = s.Topic(t.Topic).AllowNext(ctx, delivered(t), next, max(s.window, chainWindow))
	at.moved = !f.park && at.due != next
	return at, err
}

// estimateError is by how many ms an estimate of Redis's clock may be behind it.
const estimateError = 1000

// notBefore corrects an estimate of Redis's clock: a delivery shows that the clock had
// reached its due time. More than estimateError means that the clock was set back since.
func notBefore(now, due int64) int64 {
	if due > now && due-now <= estimateError {
		return due
	}
	return now
}

// mark is the value of shard.HeaderNext for f, or "" for none. A retry and what is parked
// keep when the task was due first; what is parked keeps the delivery's due, too. A next
// step begins again, as does a retry that the producer rescheduled.
func (f following) mark(t *task.Task, at permit) string {
	first := t.FirstDue.UnixMilli()
	switch {
	case f.park:
		return shard.NextMark(first, t.Due.UnixMilli())
	case f.attempts == 0:
		return shard.NextMark(at.due, at.due)
	case at.moved:
		return ""
	}
	return shard.NextMark(first, at.due)
}

// put stores f after the delivery of t, and reports whether it did: the task may
// have changed since. errRemoved: its topic was removed.
func (s *store) put(ctx context.Context, t *task.Task, f following, at permit) (bool, error) {
	next := *t
	next.Payload = f.payload
	if mark := f.mark(t, at); mark != "" {
		next.Headers = maps.Clone(t.Headers)
		if next.Headers == nil {
			next.Headers = map[string]string{}
		}
		next.Headers[shard.HeaderNext] = mark
	}
	stored, err := s.routers.Topic(t.Topic).Requeue(ctx, shard.Requeue{
		ID: t.ID, Op: f.op, Due: t.Due.UnixMilli(), Attempt: t.Attempt,
		Next: at.due, Park: f.park, Attempts: f.attempts,
		Scheduled: t.Scheduled.UnixMilli(), Reason: f.reason, Body: shard.EncodeBody(&next),
	})
	if s.isRemoved(ctx, t.Topic, err) {
		return false, errRemoved
	}
	return stored, err
}

// errRemoved ends the tries to store a task.
var errRemoved = errors.New("the topic was removed")

// removedFor is how long a topic is met removed before that is final: a removal that
// finds tasks brings the topic back at once.
const removedFor = 5 * time.Second

// isRemoved reports whether err is for a topic that was removed, some time ago. A topic
// that Redis lost, or never had, is unknown too, but isn't removed: a scanner puts it
// back.
func (s *store) isRemoved(ctx context.Context, topic string, err error) bool {
	met := false
	if errors.Is(err, task.ErrUnknownTopic) {
		p, err := s.Topic(topic).Placement(ctx)
		if met = p.Phase == shard.Removed; !met && err != nil {
			return false // nobody knows
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !met {
		delete(s.removed, topic)
		return false
	}
	if s.removed[topic].IsZero() {
		s.removed[topic] = time.Now()
	}
	return time.Since(s.removed[topic]) >= removedFor
}
