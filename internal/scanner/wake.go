package scanner

import (
	"context"
	"sync"
)

// bells tells workers that a task became the earliest of the shard they attend.
type bells struct {
	mu    sync.Mutex
	heard map[int]map[*bell]struct{} // by shard: who attends it here
}

func newBells() *bells { return &bells{heard: map[int]map[*bell]struct{}{}} }

// bell rings with the earliest score, in Redis ms, since it was last asked.
type bell struct {
	rung  chan struct{}
	mu    sync.Mutex
	score int64
}

// attend returns a bell for one shard, and what takes it down.
func (b *bells) attend(shard int) (*bell, func()) {
	own := &bell{rung: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard[shard] == nil {
		b.heard[shard] = map[*bell]struct{}{}
	}
	b.heard[shard][own] = struct{}{}
	return own, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.heard[shard], own)
	}
}

// ring tells all that attend a shard here.
func (b *bells) ring(shard int, score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for own := range b.heard[shard] {
		own.ring(score)
	}
}

func (b *bell) ring(score int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.score == 0 || score < b.score {
		b.score = score
	}
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// take returns the earliest score rung since the last call; 0: none.
func (b *bell) take() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	score := b.score
	b.score = 0
	return score
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
		t.shard.Wakes(listening, n, t.bells.ring, t.tendNow)
		cancel()
	}
	return nil
}
