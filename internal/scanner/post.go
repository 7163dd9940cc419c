package scanner

import (
	"cmp"
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// post is one shard that a worker attends for a tick.
type post struct {
	shard int
	// next is when to do something there, by this process's clock: to look, or else
	// to claim; zero: not before a wake-up.
	next time.Time
	// unseen shards are looked at, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero: it isn't known.
	heard, now time.Time
	served     time.Time // when it was last claimed from in this tick
	retry      retry.Backoff
}

// posts are those of a tick.
type posts []*post

// posts are shards whose time has come. One that this scanner has not claimed from yet,
// or in vain, is claimed from and not looked at: what a claim lacks, a right for
// example, shows at once and not when something is due.
func (t *topic) posts(shards []int) posts {
	all, now := make(posts, len(shards)), time.Now()
	for i, at := range shards {
		all[i] = &post{shard: at, next: now, unseen: t.proven(at)}
	}
	return all
}

// first is the post whose time comes first; nil if none has one.
func (all posts) first() (first *post) {
	for _, p := range all {
		if !p.next.IsZero() && (first == nil || p.next.Before(first.next)) {
			first = p
		}
	}
	return first
}

// due is the post to serve now, of those whose time has come the one that was served
// longest ago: a shard with a backlog that is older than what the others have shall not
// hold them up. It is nil if no time has come.
func (all posts) due(now time.Time) (first *post) {
	for _, p := range all {
		if p.unseen || p.next.IsZero() || p.next.After(now) {
			continue
		}
		if first == nil || cmp.Or(p.served.Compare(first.served), p.next.Compare(first.next)) < 0 {
			first = p
		}
	}
	return first
}

// wake notes that a task with a score, in Redis ms, became the earliest of a shard. One
// that has not been looked at, or has failed, has a time already.
func (all posts) wake(at int, score int64) {
	for _, p := range all {
		if p.shard != at || p.heard.IsZero() {
			continue
		}
		if next := p.at(time.UnixMilli(score)); p.next.IsZero() || next.Before(p.next) {
			p.next = next
		}
	}
}

// at is when Redis's clock will show an instant.
func (p *post) at(instant time.Time) time.Time { return p.heard.Add(instant.Sub(p.now)) }

// learn notes when the shard needs attention next, which was heard just now.
func (p *post) learn(heard, now, next time.Time) {
	p.heard, p.now, p.unseen, p.next = heard, now, false, time.Time{}
	p.retry.Reset()
	if !next.IsZero() {
		p.next = p.at(next)
	}
}

// fail backs off from the shard: what failed, a look or a claim, is done again then.
func (p *post) fail(pause time.Duration) {
	p.heard, p.next = time.Time{}, time.Now().Add(pause)
}

// look finds out when the shards that nothing is known of need attention, all in one
// round trip. Those that can't be reached are looked at again together; one that Redis
// refuses is claimed from, which tells why.
func (w *worker) look(ctx context.Context, all posts) {
	unseen := all.unseen(time.Now())
	if len(unseen) == 0 {
		return
	}
	shards := make([]int, len(unseen))
	for i, p := range unseen {
		shards[i] = p.shard
	}
	attention := w.store.Attention(context.WithoutCancel(ctx), shards...)
	heard, pause := time.Now(), time.Duration(0)
	for i, p := range unseen {
		switch a := attention[i]; {
		case a.Err == nil:
			p.learn(heard, a.Now, a.Next)
			w.recovered(ctx)
		case shard.Definite(a.Err):
			p.unseen = false
		default:
			if own := p.retry.Next(); pause == 0 {
				pause = own
				w.outage(ctx, "claim", a.Err)
			}
			p.fail(pause)
		}
	}
}

// unseen are the posts to look at now.
func (all posts) unseen(now time.Time) (unseen posts) {
	for _, p := range all {
		if p.unseen && !p.next.After(now) {
			unseen = append(unseen, p)
		}
	}
	return unseen
}
