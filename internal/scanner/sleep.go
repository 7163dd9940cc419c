package scanner

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
)

const (
	// sleepInterval is how often the sleepers look for topics that fall asleep or wake.
	sleepInterval = time.Second
	// startInterval is how soon they look for topics that have just started.
	startInterval = 20 * time.Millisecond
	// startAwake is how many topics of a scanner start awake. They poll at once, which shows
	// rights that are missing in Redis. The others start asleep, so that a scanner with many
	// topics starts soon.
	startAwake = 10
	// netInterval is how often the fleet looks at each sleeping topic, in case a wake-up was
	// lost. Each scanner does so once in netInterval times the number of scanners, and at
	// least once in netMost. Looks come up to an eighth earlier than that, and not later.
	netInterval = 20 * time.Second
	netMost     = time.Minute
	// A sleeping topic wakes aheadTicks ticks, and at least aheadLeast, before a task is due.
	aheadTicks = 3
	aheadLeast = 2 * time.Second
	// stablePace is how often the placement of a topic is read. One that is awake also reads it
	// with each draw. Placements of sleeping topics are read together; sleepPace is how often
	// each is compared with its document then.
	stablePace = 30 * time.Second
	sleepPace  = 5 * time.Minute
	// sleepTimeout bounds the calls of one look, which is at looksAtOnce shards, or at all of one
	// topic. It bounds the reading of placements, too, and takes none of a look's time.
	sleepTimeout = 4 * time.Second
	looksAtOnce  = 4096
	// clockAge is the greatest age of a reading of Redis's clock. Heartbeats read it each second,
	// except in a cluster.
	clockAge = 2 * time.Second
)

// never is a time in Redis ms that never comes.
const never = math.MaxInt64

// sleep holds what a topic knows about its sleep. While it sleeps, no worker draws tickets or
// looks at shards, because nothing is due soon. See docs/adr/0032.
type sleep struct {
	now func() int64 // estimates Redis's clock

	mu     sync.Mutex
	asleep bool
	next   int64     // when the earliest known task is due, in Redis ms.
	heard  int64     // the same, of tasks heard about since the last look began.
	woken  time.Time // when it last woke.
	deaf   time.Time // since when it sleeps without hearing all wake-ups; zero if it hears them.

	// These are of the last look at its shards.
	looked   time.Time
	again    time.Time // when the next one is, unless wake-ups may be lost
	shards   int
	renewals uint64 // of the subscription
	starts   bool   // no look has ended

	read time.Time // when its placement is read next while it sleeps; zero: not known so far
}

// sleepers puts topics to sleep and wakes them.
type sleepers struct {
	store  *shard.Store
	beat   wake.Beat
	topics func() []*served
	live   func() int
	every  time.Duration // netInterval, except in tests
	reads  time.Duration // stablePace, except in tests
	known  wake.Signal   // a topic's placement is known, so its shards can be looked at
	log    *slog.Logger
}

// now estimates Redis's clock, in ms; never before the first reading.
func (k *sleepers) now() int64 {
	if now, _ := k.store.Scripts().Estimate(); now != 0 {
		return now
	}
	return never
}

// watch looks once a second, and soon after a topic starts, until ctx ends.
func (k *sleepers) watch(ctx context.Context) {
	for ctx.Err() == nil {
		k.pass(ctx)
		select {
		case <-ctx.Done():
		case <-k.known:
			retry.Sleep(ctx, startInterval) // topics that start together are looked at together
		case <-time.After(k.beat.Until(sleepInterval)):
		}
	}
}

// wake wakes the topics in which a task is due soon, until ctx ends. It asks no server, so a
// node that hangs delays no topic.
func (k *sleepers) wake(ctx context.Context) {
	for ctx.Err() == nil {
		millis := k.now()
		for _, v := range k.topics() {
			v.topic.wakeIfDue(millis)
		}
		retry.Sleep(ctx, k.beat.Until(sleepInterval))
	}
}

// pass reads placements and looks at shards, both at the same time. So a node that hangs takes
// the time of neither.
func (k *sleepers) pass(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	millis, err := k.store.Scripts().RecentNow(asking, clockAge)
	if err != nil {
		return // heartbeats report that; nothing can be delivered
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { k.readPlacements(ctx) })
	k.look(ctx, time.UnixMilli(millis))
}

// look looks at the shards of the topics that may fall asleep, and of those that sleep and whose
// turn it is.
func (k *sleepers) look(ctx context.Context, redisNow time.Time) {
	every := min(k.every*time.Duration(max(k.live(), 1)), netMost)
	var topics []*topic
	var shards []shard.Shard
	now := time.Now()
	for _, v := range k.topics() {
		t := v.topic
		if len(shards) >= looksAtOnce {
			k.known.Send() // the others are next
			break
		}
		if !t.beginLook(now, every) {
			continue
		}
		topics = append(topics, t)
		for at := range t.sleep.shards {
			shards = append(shards, t.store.Shard(at))
		}
	}
	looking, cancel := context.WithTimeout(ctx, sleepTimeout)
	heads := k.store.Heads(looking, shards)
	cancel()
	waking, cancel := context.WithTimeout(ctx, sleepTimeout) // the look may have taken all of its time
	defer cancel()
	for _, t := range topics {
		n := t.sleep.shards
		for _, lost := range t.endLook(heads[:n]) {
			if err := t.store.Shard(lost).Wakeup(waking, redisNow); err != nil {
				k.log.DebugContext(ctx, "wake-up not repeated", "topic", t.name, "error", err)
			}
		}
		heads = heads[n:]
	}
}

// readPlacements reads the placements of the sleeping topics whose turn it is. The resharder of a
// topic whose placement differs, or can't be read, finds out why.
func (k *sleepers) readPlacements(ctx context.Context) {
	var topics []*topic
	var stores []*shard.Topic
	now := time.Now()
	for _, v := range k.topics() {
		if v.topic.beginRead(now, k.reads) {
			topics, stores = append(topics, v.topic), append(stores, v.topic.store)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	for i, p := range k.store.Placements(ctx, stores) {
		switch t := topics[i]; {
		case p.Err == nil:
			t.polling.Drawn(p.Placement)
		case errors.Is(p.Err, task.ErrUnknownTopic):
			t.polling.Drawn(shard.Placement{})
		default:
			t.inForce.Changed.Fire()
		}
	}
}

// beginRead reports whether the placement of the topic, if it sleeps, should be read now.
func (t *topic) beginRead(now time.Time, every time.Duration) bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	s := &t.sleep
	if !s.asleep {
		s.read = time.Time{}
		return false
	}
	due := !s.read.IsZero() && !now.Before(s.read)
	if due || s.read.IsZero() {
		s.read = now.Add(every - rand.N(every/4)) // so that not all are read together
	}
	return due
}

// asleep reports whether the topic sleeps.
func (t *topic) asleep() bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	return t.sleep.asleep
}

// wake ends the topic's sleep, or keeps it from falling asleep for a while.
func (t *topic) wake() {
	t.sleep.mu.Lock()
	was := t.sleep.asleep
	t.sleep.asleep, t.sleep.woken = false, time.Now()
	if was {
		t.publisher.Rest(false)
	}
	t.sleep.mu.Unlock()
	if was {
		t.inForce.Changed.Fire()
	}
}

// hear notes that a task with this score became the earliest of a shard.
func (t *topic) hear(shard int, score int64) {
	t.poller.Hear(shard, score)
	t.sleep.mu.Lock()
	t.sleep.next, t.sleep.heard = min(t.sleep.next, score), min(t.sleep.heard, score)
	t.sleep.mu.Unlock()
	t.wakeIfDue(t.sleep.now())
}

// wakeIfDue wakes the topic if a task is due soon. Redis's clock shows now.
func (t *topic) wakeIfDue(now int64) {
	t.sleep.mu.Lock()
	due := t.sleep.asleep && t.soon(t.sleep.next, now)
	t.sleep.mu.Unlock()
	if due {
		t.wake()
	}
}

// pace returns how often the topic's placement is compared with its document, if nothing says that
// one of them changed.
func (t *topic) pace() time.Duration {
	switch p, _ := t.resharder.Known(); {
	case p.Epoch == 0 || p.Phase != shard.Stable:
		return reshard.Interval
	case t.asleep():
		return sleepPace
	}
	return stablePace
}

// soon reports whether a topic with a task that is due then must be awake, when Redis's clock shows
// now.
func (t *topic) soon(due, now int64) bool {
	ahead := max(aheadLeast, aheadTicks*t.inForce.Settings().Tick)
	return due-ahead.Milliseconds() <= now
}

// beginLook reports whether the topic's shards should be looked at now. If so, hear notes
// the tasks that come from now on.
func (t *topic) beginLook(now time.Time, every time.Duration) bool {
	p, removed := t.resharder.Known()
	if p.Epoch == 0 || removed {
		return false
	}
	renewals, all := t.listening.Heard()
	if p.Phase != shard.Stable || t.isDeaf(now, !all) {
		t.wake()
		return false
	}
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	s := &t.sleep
	if s.asleep {
		sure := all && renewals == s.renewals && p.Scanned() == s.shards
		if sure && now.Before(s.again) || !sure && now.Sub(s.looked) < sleepInterval/2 {
			return false
		}
	} else if !all || !t.calm() {
		return false
	}
	s.looked = now
	s.again = s.looked.Add(every - rand.N(every/8)) // so that topics aren't looked at together
	s.shards, s.renewals, s.heard = p.Scanned(), renewals, never
	return true
}

// isDeaf notes whether the topic hears all wake-ups. It reports whether it sleeps and didn't for
// a while after its first look, so that it must poll its shards.
func (t *topic) isDeaf(now time.Time, deaf bool) bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	s := &t.sleep
	if !deaf || !s.asleep || s.starts {
		s.deaf = time.Time{}
		return false
	}
	if s.deaf.IsZero() {
		s.deaf = now
	}
	return now.Sub(s.deaf) > t.quiet
}

// calm reports whether no claim has found a task for a while, and the topic wasn't woken. Redis
// must serve its workers.
// sleep.mu is held.
func (t *topic) calm() bool {
	if last := t.claimed.Load(); last != nil && time.Since(*last) <= t.quiet {
		return false
	}
	return time.Since(t.sleep.woken) > t.quiet && t.health.outage.Load() == nil
}

// endLook takes the result of a look. The topic falls asleep if nothing is due soon, and
// wakes otherwise. It returns the shards with tasks that a sleeping topic hadn't heard about.
func (t *topic) endLook(heads []shard.Head) (unheard []int) {
	renewals, all := t.listening.Heard()
	t.sleep.mu.Lock()
	s := &t.sleep
	now := t.sleep.now()
	was, heard, next, stay := s.asleep, t.soon(s.heard, now), s.heard, true
	for at, h := range heads {
		due := int64(never)
		switch {
		case h.Err != nil:
			stay = false
		case h.Leased: // and overdue, if the scanner that claimed it died
			due = now
		case !h.Due.IsZero():
			due = h.Due.UnixMilli()
		}
		if was && !heard && !s.starts && t.soon(due, now) {
			unheard = append(unheard, at)
		}
		next = min(next, due)
	}
	if stay {
		s.next = next
	}
	s.starts = false
	stay = stay && !t.soon(next, now)
	if !was && stay && all && renewals == s.renewals && t.calm() {
		s.asleep = true
		t.publisher.Rest(true)
	}
	s.mu.Unlock()
	if was && !stay {
		t.wake()
	}
	return unheard
}
