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

// chainWindow is how long, at least, the delivery history keeps which delivery followed
// which, even if the consumer remembers nothing else.
const chainWindow = 24 * time.Hour

// store makes a consumer's calls to Redis, for the delivery history of an ID and for the
// task in its shard.
type store struct {
	*shard.Store
	routers *router.Routers
	window  time.Duration    // negative: nothing is remembered
	clock   func() time.Time // the consumer's

	mu      sync.Mutex
	removed map[string]time.Time // by topic: when this consumer first found it removed.
	met     map[string]bool      // topics that are known to be, or to have been, served here.
	silent  time.Time            // when Redis last failed to say whether a topic is served.
}

// silentFor is how long the consumer waits, after Redis gave no answer, before it asks
// again whether a topic is served. Meanwhile it handles deliveries.
const silentFor = 5 * time.Second

// served returns task.ErrUnknownTopic if no scanner has served the topic under this prefix
// in this Redis. Then the scanners that sent the message use another prefix or Redis. For
// a removed topic it returns nil, because it was served here; also if Redis can't answer.
// Once a topic is known, served doesn't ask again.
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

// begin returns whether to handle a delivery. A consumer that remembers nothing handles a
// first attempt without asking Redis, unless next is set. next (shard.HeaderNext) says that
// a consumer stored the task: as a next step, or as a parked task that was replayed. These
// also begin with attempt 1.
func (s *store) begin(ctx context.Context, t *task.Task, next bool) (shard.Disposition, error) {
	if !s.remembers() && t.Attempt == 1 && !next {
		return shard.Run, nil
	}
	if over, err := s.seriesOver(ctx, t); over || err != nil {
		return shard.Over, err
	}
	return s.Topic(t.Topic).CheckDelivery(ctx, delivered(t), max(s.window, 0))
}

// seriesOver reports whether t is a run of a recurring task that was cancelled since.
func (s *store) seriesOver(ctx context.Context, t *task.Task) (bool, error) {
	if t.Series == "" {
		return false, nil
	}
	of := delivered(t)
	of.ID = t.Series
	found, err := s.Topic(t.Topic).CheckDelivery(ctx, of, 0)
	return found == shard.Over, err
}

func delivered(t *task.Task) shard.Delivered {
	return shard.Delivered{ID: t.ID, Due: t.Due.UnixMilli(), Scheduled: t.Scheduled.UnixMilli()}
}

// done remembers that a delivery is done, unless the consumer remembers nothing.
func (s *store) done(ctx context.Context, t *task.Task) error {
	if !s.remembers() {
		return nil
	}
	return s.Topic(t.Topic).Done(ctx, t.ID, t.Due.UnixMilli(), s.window)
}

// following is the retry or next step that follows a delivery.
type following struct {
	when     task.When     // zero if park is set.
	local    time.Time     // when by the consumer's clock; zero: only Redis's clock counts.
	least    time.Duration // the shortest delay from now; not above 0: none
	park     bool
	step     bool // a next step
	attempts int  // attempts so far
	reason   string
	payload  []byte
	op       shard.Op // of the put, the same for each try
}

// due returns when f is due, in ms of Redis's clock. now is the time by Redis's clock, here
// is the same moment by the consumer's.
func (f following) due(now int64, here time.Time) int64 {
	due := f.when.Time(time.UnixMilli(now)).UnixMilli()
	if !f.local.IsZero() {
		due = max(due, now+f.local.Sub(here).Milliseconds())
	}
	return max(due, now+max(f.least, 0).Milliseconds())
}

// permit says whether a retry or next step may follow a delivery.
type permit struct {
	allowed bool  // false: the producer cancelled or replaced the task.
	due     int64 // when the retry or next step is due, in ms.
}

// allow asks whether f may follow the delivery of t, and when it is due.
func (s *store) allow(ctx context.Context, t *task.Task, f following) (at permit, err error) {
	if over, err := s.seriesOver(ctx, t); over || err != nil {
		return permit{}, err
	}
	var next int64
	if !f.park {
		now, err := s.Now(ctx)
		if err != nil {
			return permit{}, err
		}
		next = max(f.due(notBefore(now, t.Due.UnixMilli()), s.clock()), t.Due.UnixMilli()+1)
	}
	at.due, at.allowed, err = s.Topic(t.Topic).AllowNext(ctx, delivered(t), next, max(s.window, chainWindow))
	return at, err
}

// estimateError is how far an estimate of Redis's clock may be behind it, in ms.
const estimateError = 1000

// notBefore corrects now, an estimate of Redis's clock. Since a task was delivered, the
// clock has reached its due time. If due is later than now by more than estimateError, the
// clock was set back after the delivery, and now stays.
func notBefore(now, due int64) int64 {
	if due > now && due-now <= estimateError {
		return due
	}
	return now
}

// mark returns the value of shard.HeaderNext for f, or "" for none. A retry and a parked
// task keep the time when the task was due first. A parked task keeps the due time of the
// delivery, too, and its replay counts attempts from 1. A next step has a first due time of
// its own.
func (f following) mark(t *task.Task, at permit) string {
	first := t.FirstDue.UnixMilli()
	switch {
	case f.park:
		return shard.NextMark(first, t.Due.UnixMilli(), 0)
	case f.step:
		return shard.NextMark(at.due, at.due, 0)
	}
	return shard.NextMark(first, at.due, f.attempts)
}

// body returns the body of f's record: t's with f's payload and mark. A message of the
// intake stays one.
func (f following) body(t *task.Task, at permit) ([]byte, error) {
	mark, next := f.mark(t, at), *t
	next.Payload, next.Headers = f.payload, marked(t.Headers, mark)
	if t.AMQP != nil {
		marked := task.AMQP{RoutingKey: t.AMQP.RoutingKey, Properties: t.AMQP.Properties,
			Headers: marked[any](t.AMQP.Headers, mark)}
		next.AMQP = &marked
	}
	return shard.Encode(&next)
}

// marked returns headers with a mark, in a copy; mark "" adds none.
func marked[V any](headers map[string]V, mark V) map[string]V {
	if any(mark) == any("") {
		return headers
	}
	all := make(map[string]V, len(headers)+1)
	maps.Copy(all, headers)
	all[shard.HeaderNext] = mark
	return all
}

// storeNext stores f after the delivery of t. It returns false if the task was changed since, and
// errRemoved if the topic was removed.
func (s *store) storeNext(ctx context.Context, t *task.Task, f following, at permit) (bool, error) {
	body, err := f.body(t, at)
	if err != nil {
		return false, err
	}
	stored, err := s.routers.Topic(t.Topic).Requeue(ctx, shard.Requeue{
		ID: t.ID, Op: f.op, Due: t.Due.UnixMilli(), Attempt: t.Attempt,
		Next: at.due, Park: f.park, Attempts: f.attempts,
		Scheduled: t.Scheduled.UnixMilli(), Reason: f.reason, Body: body,
	})
	if s.isRemoved(ctx, t.Topic, err) {
		return false, errRemoved
	}
	return stored, err
}

// errRemoved ends the tries to store a task.
var errRemoved = errors.New("the topic was removed")

// removedFor is how long a topic must stay removed before the consumer gives up its tasks.
// A removal that finds tasks brings the topic back at once.
const removedFor = 5 * time.Second

// isRemoved reports whether err means that the topic is removed, and has been for
// removedFor. A topic without a placement, for example one that Redis lost, is unknown too.
// It doesn't count as removed, because a scanner may restore it.
func (s *store) isRemoved(ctx context.Context, topic string, err error) bool {
	met := false
	if errors.Is(err, task.ErrUnknownTopic) {
		p, err := s.Topic(topic).Placement(ctx)
		if met = p.Phase == shard.Removed; !met && err != nil {
			return false // Redis didn't answer
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
