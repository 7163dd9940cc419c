package scanner

import (
	"context"
	"sync"
)

// bells tells workers that a task became the earliest of a shard they attend.
type bells struct {
	mu    sync.Mutex
	heard map[int]map[*bell]struct{} // by shard: who attends it here
}

func newBells() *bells { return &bells{heard: map[int]map[*bell]struct{}{}} }

// bell rings with the earliest score of each shard, in Redis ms, since it was last
// asked.
type bell struct {
	rung   chan struct{}
	mu     sync.Mutex
	scores map[int]int64 // by shard
}

// attend returns a bell for some shards, and what takes it down.
func (b *bells) attend(shards ...int) (*bell, func()) {
	own := &bell{rung: make(chan struct{}, 1), scores: map[int]int64{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range shards {
		if b.heard[at] == nil {
			b.heard[at] = map[*bell]struct{}{}
		}
		b.heard[at][own] = struct{}{}
	}
	return own, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, at := range shards {
			delete(b.heard[at], own)
		}
	}
}

// ring tells all that attend a shard here.
func (b *bells) ring(shard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for own := range b.heard[shard] {
		own.ring(shard, score)
	}
}

func (b *bell) ring(shard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, rung := b.scores[shard]; !rung || score < before {
		b.scores[shard] = score
	}
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// take returns the earliest scores rung since the last call, by shard.
func (b *bell) take() map[int]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	scores := b.scores
	b.scores = map[int]int64{}
	return scores
}

// listen passes the topic's wake messages on to the bells, listening to as many
// shards as there are to attend; and has a placement that was put in force looked at
// at once: new tasks lie in its shards already.
func (t *topic) listen(ctx context.Context) error {
	for ctx.Err() == nil {
		n := t.scanned()
		listening, cancel := context.WithCancel(ctx)
		go func() {
			t.waitScanned(listening, n)
			cancel()
		}()
		t.store.Wakes(listening, n, t.bells.ring, t.tendNow, t.listens)
		cancel()
	}
	return nil
}
