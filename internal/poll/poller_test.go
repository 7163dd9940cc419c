package poll

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// bench is a topic that is polled by a poller under test. Its claims lease nothing: they tell the
// test, which decides what they find.
type bench struct {
	*Poller
	t       *testing.T
	redis   *fixture.Redis
	changed wake.Broadcast

	mu     sync.Mutex
	demand Demand
	sends  []int              // the shard of each claim
	fails  map[int]error      // by shard
	hangs  map[int]chan error // by shard
	begun  [][]int            // the shards of each tick
	ended  int
	given  int       // rooms that were given back
	rest   time.Time // of the rate
	silent map[string]bool
	failed int // calls that failed
}

// polling runs a poller of a topic with four shards, with one claim at a time. Others have drawn
// before it.
func polling(t *testing.T, tick time.Duration, others ...shard.Draw) *bench {
	t.Helper()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 4)
	for _, other := range others {
		_, err := topic.Draw(t.Context(), other)
		check.OK(t, err)
	}
	return pollingAs(t, "here", tick, r, topic)
}

// pollingAs runs the poller of one scanner.
func pollingAs(t *testing.T, instance string, tick time.Duration, r *fixture.Redis, topic *shard.Topic) *bench {
	t.Helper()
	b := &bench{t: t, redis: r, fails: map[int]error{}, hangs: map[int]chan error{}, silent: map[string]bool{},
		demand: Demand{Claims: 1, Tickets: 4, Tick: tick, Scanned: 4}}
	convoy := r.Store.NewConvoy()
	pool := wake.NewPool(1)
	b.Poller = New(topic, instance, convoy, wake.NewAlarms(pool), pool, b, &b.changed)
	check.Background(t, "the poller", func(ctx context.Context) error {
		b.Start(ctx)
		wait := b.changed.Follow(ctx, b.Chore())
		<-ctx.Done()
		b.Stop()
		wait()
		convoy.Wait()
		pool.Close()
		return nil
	})
	return b
}

func (b *bench) set(change func(*bench)) {
	b.mu.Lock()
	change(b)
	b.mu.Unlock()
	b.changed.Fire()
}

// count reads a number under the mutex.
func (b *bench) count(of func(*bench) int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return of(b)
}

func claims(of int) func(*bench) int {
	return func(b *bench) (n int) {
		for _, at := range b.sends {
			if at == of {
				n++
			}
		}
		return n
	}
}

// hear wakes the shards for tasks that are due now, and waits for a claim of each.
func (b *bench) hear(shards ...int) {
	b.t.Helper()
	for _, at := range shards {
		before := b.count(claims(at))
		b.Hear(at, 0)
		check.Until(b.t, "a claim", func() bool { return b.count(claims(at)) > before })
	}
}

func (b *bench) Demand() Demand {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.demand
}

func (b *bench) Drawn(shard.Placement) {}

func (b *bench) Claimed(at int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.sends, at)
}

func (b *bench) Begin(_, _ context.Context, shards []int, _ shard.Placement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = append(b.begun, shards)
}

func (b *bench) End(bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended++
}

func (b *bench) Claim(_, _ context.Context, r Request) Answer {
	b.mu.Lock()
	if time.Now().Before(b.rest) {
		defer b.mu.Unlock()
		return Answer{Rest: b.rest}
	}
	b.sends = append(b.sends, r.Shard)
	err, hangs, asked := b.fails[r.Shard], b.hangs[r.Shard], time.Now()
	b.mu.Unlock()
	late := time.AfterFunc(r.Patience, func() {
		b.mu.Lock()
		b.given++
		b.mu.Unlock()
		r.Late()
	})
	defer late.Stop()
	if hangs != nil {
		err = <-hangs
	}
	now := time.Now()
	return Answer{Sent: true, Err: err, Asked: asked, Heard: now, Now: now}
}

func (b *bench) Fails(_ context.Context, node, _ string, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent[node] = true
	b.failed++
}

func (b *bench) Works(_ context.Context, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.silent, node)
}

func (b *bench) Keep(_ context.Context, nodes map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if nodes == nil {
		clear(b.silent)
	}
}

// wakes lets the topic claim again, after its sleep or its pause. Each claim hangs until the channel
// is closed.
func (b *bench) wakes(slept bool) (let chan error) {
	b.t.Helper()
	if slept {
		b.set(func(b *bench) { b.demand.Claims = 0 })
		check.Until(b.t, "the end of the tick", func() bool {
			return b.count(func(b *bench) int { return len(b.begun) - b.ended }) == 0
		})
	}
	let = make(chan error)
	b.set(func(b *bench) {
		for at := range 4 {
			b.hangs[at] = let
		}
		b.sends, b.demand.Claims, b.demand.Paused = nil, 1, false
	})
	return let
}

// starts waits for a claim of each shard, which comes without a look.
func (b *bench) starts() {
	b.t.Helper()
	for at := range 4 {
		check.Until(b.t, "a claim", func() bool { return b.count(claims(at)) > 0 })
	}
}

func TestAClaimThatHangsHoldsUpNoOtherShard(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	let := make(chan error)
	b.set(func(b *bench) { b.hangs[2] = let })
	b.hear(2)
	for range 5 {
		b.hear(0, 1, 3)
	}
	if n := b.count(func(b *bench) int { return b.given }); n == 0 {
		t.Error("the claim that hangs keeps its room")
	}
	if n := b.count(claims(2)); n != 2 {
		t.Errorf("%d claims of the shard, want two, the second of which hangs", n)
	}
	b.Hear(2, 0) // while the claim hangs
	let <- nil
	check.Until(t, "the next claim of the shard", func() bool { return b.count(claims(2)) > 2 })
	let <- nil
}

// TestAClaimThatHangsHoldsUpNoDraw that shares a pipeline with the one from whose answer it began.
func TestAClaimThatHangsHoldsUpNoDraw(t *testing.T) {
	t.Parallel()
	b := polling(t, 20*time.Millisecond)
	b.starts()
	let := b.wakes(true)
	check.Until(t, "the claim", func() bool { return b.count(func(b *bench) int { return len(b.sends) }) > 0 })
	drawn := func() int {
		n, err := b.redis.Client.Get(t.Context(), b.redis.Prefix+":ticket:{orders}").Int()
		check.OK(t, err)
		return n
	}
	before := drawn()
	check.Until(t, "more draws", func() bool { return drawn() > before+2*4 })
	close(let)
}

// TestAClaimThatHangsHoldsUpNoChange of the demand, also if the last change led to the claim.
func TestAClaimThatHangsHoldsUpNoChange(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	b.set(func(b *bench) { b.demand.Paused = true })
	b.Hear(1, 0)
	let := b.wakes(false)
	check.Until(t, "the claim", func() bool { return b.count(func(b *bench) int { return len(b.sends) }) > 0 })
	check.Until(t, "it to be late", func() bool { return b.count(func(b *bench) int { return b.given }) == 1 })
	b.set(func(b *bench) { b.demand.Claims = 0 })
	check.Until(t, "the end of the tick", func() bool { return b.count(func(b *bench) int { return b.ended }) == 1 })
	close(let)
}

// TestClaimsThatHangAreFew: at a node with as many as are allowed, nothing more is claimed.
func TestClaimsThatHangAreFew(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	let := make(chan error)
	b.set(func(b *bench) {
		for at := range 4 {
			b.hangs[at] = let
		}
	})
	for at := range 4 {
		b.Hear(at, 0)
	}
	sends := func() int { return b.count(func(b *bench) int { return len(b.sends) }) }
	check.Until(t, "as many claims as may hang", func() bool { return sends() == 4+mostLate })
	check.Until(t, "their room to be given back", func() bool {
		return b.count(func(b *bench) int { return b.given }) == mostLate
	})
	let <- nil
	check.Until(t, "another claim", func() bool { return sends() == 4+mostLate+1 })
	let <- nil
	let <- nil
	let <- nil
	if n := sends(); n != 8 {
		t.Errorf("%d claims, want two of each shard", n)
	}
}

func TestAShardThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	b.set(func(b *bench) { b.fails[2] = errors.New("away") })
	b.hear(2)
	for range 5 {
		b.hear(0, 1, 3)
	}
	check.Count(t, "claims of the shard that fails", 4, func() int { return b.count(claims(2)) })
	silent := func() int { return b.count(func(b *bench) int { return len(b.silent) }) }
	check.Until(t, "the outage to be noted", func() bool { return silent() == 1 })
	b.set(func(b *bench) { delete(b.fails, 2) })
	check.Until(t, "the outage to end", func() bool { return silent() == 0 })
}

func TestAPausedTopicClaimsNothing(t *testing.T) {
	t.Parallel()
	b := polling(t, 20*time.Millisecond)
	b.starts()
	b.set(func(b *bench) { b.demand.Paused = true })
	ticks := func() int { return b.count(func(b *bench) int { return b.ended }) }
	before := ticks()
	check.Until(t, "a tick of the pause", func() bool { return ticks() > before+1 })
	sends := b.count(func(b *bench) int { return len(b.sends) })
	b.Hear(1, 0)
	before = ticks()
	check.Until(t, "more ticks", func() bool { return ticks() > before+2 })
	if n := b.count(func(b *bench) int { return len(b.sends) }) - sends; n != 0 {
		t.Errorf("%d claims", n)
	}
	b.set(func(b *bench) { b.demand.Paused = false })
	b.hear(1)
}

// TestARateHoldsUpAllShards until the time that it names.
func TestARateHoldsUpAllShards(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	rest := time.Now().Add(100 * time.Millisecond)
	b.set(func(b *bench) { b.rest = rest })
	b.hear(3, 1)
	if now := time.Now(); now.Before(rest) {
		t.Errorf("claimed %s before the rest is over", rest.Sub(now))
	}
}

// TestATopicWithoutDemandIsLeft: its tick ends at once, and it is polled again when that changes.
func TestATopicWithoutDemandIsLeft(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	b.starts()
	b.set(func(b *bench) { b.demand.Claims = 0 })
	check.Count(t, "ends of ticks", 1, func() int { return b.count(func(b *bench) int { return b.ended }) })
	b.set(func(b *bench) { b.demand.Claims, b.sends = 2, nil })
	b.starts()
}

// TestACallThatFailsOnceATopicSleepsIsNoOutage: no call would show that it is over. Heartbeats tell
// whether Redis is there.
func TestACallThatFailsOnceATopicSleepsIsNoOutage(t *testing.T) {
	t.Parallel()
	b := polling(t, 20*time.Millisecond)
	b.starts()
	var once sync.Once
	sent, let := make(chan struct{}), make(chan struct{})
	faults.Around(b.redis.Client, func(_ context.Context, r faults.Request) error {
		once.Do(func() { close(sent) })
		<-let
		return r.Fail(errors.New("READONLY"))
	})
	check.Closed(t, "a draw", sent)
	b.set(func(b *bench) { b.demand.Claims = 0 })
	check.Until(t, "the end of the tick", func() bool {
		return b.count(func(b *bench) int { return len(b.begun) - b.ended }) == 0
	})
	failed := b.count(func(b *bench) int { return b.failed })
	close(let)
	check.Until(t, "the failure", func() bool { return b.count(func(b *bench) int { return b.failed }) > failed })
	silent := func() int { return b.count(func(b *bench) int { return len(b.silent) }) }
	check.Until(t, "the end of the outage", func() bool { return silent() == 0 })
}

// TestTicketsNameTheShards: another tick, or another number of shards, ends a tick at once.
func TestTicketsNameTheShards(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour)
	tick := func(n int) []int {
		t.Helper()
		check.Count(t, "ticks", n, func() int { return b.count(func(b *bench) int { return len(b.begun) }) })
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.begun[n-1]
	}
	if got := slices.Sorted(slices.Values(tick(1))); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("four tickets for four shards name %v", got)
	}
	b.set(func(b *bench) { b.demand.Tick, b.demand.Tickets = time.Minute, 3 })
	if got := tick(2); len(got) != 3 {
		t.Errorf("three tickets name %v", got)
	}
}

// TestWhileRedisDoesNotAnswerTheFollowingShardsArePolled, so that none is left alone.
func TestWhileRedisDoesNotAnswerTheFollowingShardsArePolled(t *testing.T) {
	t.Parallel()
	b := polling(t, 20*time.Millisecond)
	b.set(func(b *bench) { b.demand.Tickets = 3 })
	b.starts()
	faults.Around(b.redis.Client, func(_ context.Context, r faults.Request) error {
		return r.Fail(errors.New("no answer"))
	})
	check.Until(t, "an outage", func() bool { return b.count(func(b *bench) int { return len(b.silent) }) > 0 })
	from := b.count(func(b *bench) int { return len(b.begun) })
	check.Until(t, "eight ticks", func() bool { return b.count(func(b *bench) int { return len(b.begun) }) > from+8 })
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := from; i < from+8; i++ {
		last, next := b.begun[i-1], b.begun[i]
		if next[0] != (last[len(last)-1]+1)%4 {
			t.Errorf("shards %v follow %v", next, last)
		}
	}
}

func TestADrawIsOfConsecutiveShardsUnderThePlacement(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	convoy := r.Store.NewConvoy()
	draw := func(n int) (shards []int, p shard.Placement, err error) {
		done := make(chan struct{})
		request := shard.Draw{Instance: "here", N: n, Stay: time.Second}
		convoy.Draw(t.Context(), r.Orders(), request, func(answer shard.Drawn, failed error) {
			if p, err = answer.Placement, failed; err == nil {
				shards = balance.Shards(answer.First, n, p.Scanned())
			}
			close(done)
		})
		check.Closed(t, "the answer to a draw", done)
		return shards, p, err
	}
	if _, _, err := draw(1); !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("a draw before the topic is made: %v", err)
	}
	made, err := r.Orders().Ensure(t.Context(), 5)
	check.OK(t, err)
	next, p, err := draw(3)
	check.OK(t, err)
	if len(next) != 3 || p != made {
		t.Fatalf("drew %v under %s, want 3 shards under %s", next, p, made)
	}
	for range 4 {
		drawn, _, err := draw(2)
		check.OK(t, err)
		if len(drawn) != 2 || drawn[0] != (next[len(next)-1]+1)%5 || drawn[1] != (drawn[0]+1)%5 {
			t.Fatalf("drew %v after %v", drawn, next)
		}
		next = drawn
	}
}

// TestAWakeUpDuringADrawIsNotLost: the draw has looked at the shard when the task is put there, and
// its answer comes after the wake-up.
func TestAWakeUpDuringADrawIsNotLost(t *testing.T) {
	t.Parallel()
	const tick = 3 * time.Second
	b := polling(t, tick)
	b.starts()
	draw, err := shard.Script("draw")
	check.OK(t, err)
	var once sync.Once
	executed, let := make(chan struct{}), make(chan struct{})
	faults.After(b.redis.Client, func(r faults.Request) {
		if slices.ContainsFunc(r.Commands, func(cmd redis.Cmder) bool { return faults.Runs(cmd, draw) }) {
			once.Do(func() {
				close(executed)
				<-let
			})
		}
	})
	ticks := func() int { return b.count(func(b *bench) int { return len(b.begun) }) }
	before := ticks()
	check.Closed(t, "a draw in Redis", executed)
	due := servertest.RedisNow(t, b.redis.Client).Add(50 * time.Millisecond).UnixMilli()
	check.OK(t, b.redis.Client.ZAdd(t.Context(), b.redis.Prefix+":due:{orders:2}",
		redis.Z{Score: float64(due), Member: "a"}).Err())
	b.Hear(2, due)
	sent := b.count(claims(2))
	close(let)
	check.Until(t, "the draw's tick", func() bool { return ticks() > before })
	check.Until(t, "a claim", func() bool { return b.count(claims(2)) > sent })
	if n := ticks() - before; n != 1 {
		t.Errorf("claimed after %d ticks, want it in the draw's", n)
	}
}

// TestADrawNeedsNoLookOfItsOwn where one call may have keys of several shards.
func TestADrawNeedsNoLookOfItsOwn(t *testing.T) {
	t.Parallel()
	b := polling(t, 20*time.Millisecond)
	b.starts()
	sent := faults.Count(b.redis.Client)
	ticks := func() int { return b.count(func(b *bench) int { return len(b.begun) }) }
	before := ticks()
	check.Until(t, "ten ticks", func() bool { return ticks() > before+10 })
	drawn := ticks() - before
	if n := sent.Of("evalsha"); n > drawn+2 {
		t.Errorf("%d calls in %d ticks", n, drawn)
	}
}

// TestWhatAnotherDrewBeforeIsLeftToIt: a due task of a shard that another scanner polls since
// before this one. This one claims it later, because the other didn't.
func TestWhatAnotherDrewBeforeIsLeftToIt(t *testing.T) {
	t.Parallel()
	b := polling(t, time.Hour, shard.Draw{Instance: "there", N: 4, Stay: time.Hour})
	b.starts()
	due := time.Now().Add(50 * time.Millisecond).UnixMilli()
	check.OK(t, b.redis.Client.ZAdd(t.Context(), b.redis.Prefix+":due:{orders:2}",
		redis.Z{Score: float64(due), Member: "a"}).Err())
	b.Hear(2, due)
	check.Until(t, "a claim", func() bool { return b.count(claims(2)) > 1 })
	if late := servertest.RedisNow(t, b.redis.Client).Sub(time.UnixMilli(due)); late < Grace {
		t.Errorf("claimed %s after it was due, want at least %s", late, Grace)
	}
}

// TestTheEarlierDrawIsThePrimaryAlsoAfterAClaim that was under way when this scanner drew.
func TestTheEarlierDrawIsThePrimaryAlsoAfterAClaim(t *testing.T) {
	t.Parallel()
	b := polling(t, 100*time.Millisecond)
	b.starts()
	hangs := make(chan error)
	b.set(func(b *bench) { b.hangs[2] = hangs })
	b.hear(2)
	_, err := b.topic.Draw(t.Context(), shard.Draw{Instance: "there", N: 4, Stay: time.Hour})
	check.OK(t, err)
	begun := func() int { return b.count(func(b *bench) int { return len(b.begun) }) }
	before := begun()
	check.Until(t, "two ticks more", func() bool { return begun() > before+1 }) // one draw may have been under way
	b.set(func(b *bench) { delete(b.hangs, 2) })
	sent := b.count(claims(2))
	due := servertest.RedisNow(t, b.redis.Client).Add(50 * time.Millisecond).UnixMilli()
	check.OK(t, b.redis.Client.ZAdd(t.Context(), b.redis.Prefix+":due:{orders:2}",
		redis.Z{Score: float64(due), Member: "a"}).Err())
	hangs <- nil
	check.Until(t, "a claim", func() bool { return b.count(claims(2)) > sent })
	if late := servertest.RedisNow(t, b.redis.Client).Sub(time.UnixMilli(due)); late < Grace {
		t.Errorf("claimed %s after it was due, want at least %s", late, Grace)
	}
}

// TestOthersThatPollAllShardsMakeATickLonger, if it may be, but not without a limit.
func TestOthersThatPollAllShardsMakeATickLonger(t *testing.T) {
	t.Parallel()
	const tick, ticks = 40 * time.Millisecond, 5
	b := polling(t, tick, shard.Draw{Instance: "there", N: 4, Stay: time.Hour})
	b.starts()
	begun := func() int { return b.count(func(b *bench) int { return len(b.begun) }) }
	b.set(func(b *bench) { b.demand.Longer = true })
	before := begun()
	check.Until(t, "a longer tick", func() bool { return begun() > before })
	began, from := time.Now(), begun()
	check.Until(t, "more of them", func() bool { return begun() >= from+ticks })
	if took, least := time.Since(began), (ticks-1)*mostTicks*tick; took < least {
		t.Errorf("%d ticks took %s, want at least %s", ticks, took, least)
	}
}

// TestScannersThatPollAllShardsDrawInTurn: each stays a tick longer than the others. So one of
// them draws in each tick.
func TestScannersThatPollAllShardsDrawInTurn(t *testing.T) {
	t.Parallel()
	const tick, scanners, tickets, draws = 40 * time.Millisecond, 3, 4, 20
	r := fixture.New(t)
	topic, _ := r.Serve(t, tickets)
	var all []*bench
	for i := range scanners {
		all = append(all, pollingAs(t, strconv.Itoa(i), tick, r, topic))
	}
	for _, b := range all {
		b.starts()
		b.set(func(b *bench) { b.demand.Longer = true })
	}
	drawn := func() int {
		n, err := r.Client.Get(t.Context(), r.Prefix+":ticket:{orders}").Int()
		check.OK(t, err)
		return n / tickets
	}
	settled := drawn() + 2*scanners
	check.Until(t, "each to stay longer", func() bool { return drawn() >= settled })
	began, from := time.Now(), drawn()
	check.Until(t, "more draws", func() bool { return drawn() >= from+draws })
	if took, least := time.Since(began), (draws-mostTicks-1)*tick; took < least {
		t.Errorf("%d draws took %s, want at least %s", draws, took, least)
	}
	for i, b := range all {
		if n := b.count(func(b *bench) int { return len(b.begun) }); n < draws/scanners/2 {
			t.Errorf("scanner %d had %d ticks", i, n)
		}
	}
}

// TestALostWakeUpOfAnAwakeTopicCostsATick: nobody hears of a task that is put there. The next draw
// finds it, also when three scanners draw in turn and each of them stays for longer than a tick.
func TestALostWakeUpOfAnAwakeTopicCostsATick(t *testing.T) {
	t.Parallel()
	for _, scanners := range []int{1, 3} {
		t.Run(strconv.Itoa(scanners), func(t *testing.T) {
			t.Parallel()
			losesAWakeUp(t, scanners)
		})
	}
}

func losesAWakeUp(t *testing.T, scanners int) {
	t.Helper()
	const tick, at = 300 * time.Millisecond, 2
	r := fixture.New(t)
	topic, _ := r.Serve(t, 4)
	var all []*bench
	for i := range scanners {
		all = append(all, pollingAs(t, strconv.Itoa(i), tick, r, topic))
	}
	sum := func(of func(*bench) int) (n int) {
		for _, b := range all {
			n += b.count(of)
		}
		return n
	}
	ticks := func(b *bench) int { return len(b.begun) }
	for _, b := range all {
		b.starts()
		b.set(func(b *bench) { b.demand.Longer = true })
	}
	settled := sum(ticks) + 2*scanners
	check.Until(t, "each scanner to have its turn", func() bool { return sum(ticks) >= settled })
	sent, before := sum(claims(at)), sum(ticks)
	due := servertest.RedisNow(t, r.Client).Add(-time.Second) // overdue, so no scanner leaves it to another
	check.OK(t, r.Client.ZAdd(t.Context(), r.Prefix+":due:{orders:"+strconv.Itoa(at)+"}",
		redis.Z{Score: float64(due.UnixMilli()), Member: "a"}).Err())
	check.Until(t, "a claim", func() bool { return sum(claims(at)) > sent })
	if n := sum(ticks) - before; n > 2 { // a draw may have been under way when the task came
		t.Errorf("claimed after %d draws, want it after the next", n)
	}
}

// TestTheEarlierDrawsAreThePrimary of the shards that their tickets name, until their ticks end.
func TestTheEarlierDrawsAreThePrimary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	redis := time.UnixMilli(1_000_000)
	d := &drawn{Drawn: shard.Drawn{
		Placement: shard.Placement{Shards: 5}, Now: redis, Heard: now, Others: []shard.Tickets{
			{First: 8, N: 3, Until: redis.Add(time.Second)}, {First: 14, N: 1, Until: redis.Add(2 * time.Second)}}}}
	d.Others = append(d.Others, shard.Tickets{First: 13, N: 2, Until: redis.Add(time.Second / 2)})
	for at, want := range [][2]time.Duration{{time.Second}, {}, {}, {time.Second, time.Second / 2},
		{2 * time.Second, time.Second}} {
		until, two := d.primary(at)
		for i, got := range []time.Time{until, two} {
			if want[i] == 0 && !got.IsZero() || want[i] > 0 && !got.Equal(now.Add(want[i])) {
				t.Errorf("shard %d has %d others until %s from now on, want %s", at, i+1, got.Sub(now), want[i])
			}
		}
	}
}

// TestCallsThatComeMeanwhileGoTogether: draws of many topics, while another pipeline is on its
// way. A pipeline has fewer draws the more keys they have.
func TestCallsThatComeMeanwhileGoTogether(t *testing.T) {
	t.Parallel()
	for scanned, want := range map[int][]int{0: {1, 682, 17}, 64: {1, 30, 30, 9}} {
		t.Run(strconv.Itoa(scanned), func(t *testing.T) {
			t.Parallel()
			pipelines(t, scanned, want)
		})
	}
}

// pipelines checks how many draws go in each pipeline, if each looks at some shards.
func pipelines(t *testing.T, scanned int, want []int) {
	t.Helper()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 4)
	convoy := r.Store.NewConvoy()
	first, caught := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var sizes []int
	faults.Before(r.Client, func(q faults.Request) {
		n := 0
		for _, cmd := range q.Commands {
			if isScript(cmd) {
				n++
			}
		}
		mu.Lock()
		sizes = append(sizes, n)
		alone := len(sizes) == 1
		mu.Unlock()
		if alone {
			close(caught)
			<-first
		}
	})
	n := 0
	for _, draws := range want {
		n += draws
	}
	var all sync.WaitGroup
	all.Add(n)
	for i := range n {
		draw := shard.Draw{Instance: "here", N: 1, Scanned: scanned}
		convoy.Draw(t.Context(), topic, draw, func(_ shard.Drawn, err error) {
			defer all.Done()
			check.OK(t, err)
		})
		if i == 0 {
			check.Closed(t, "the first draw", caught)
		}
	}
	close(first)
	all.Wait()
	convoy.Wait()
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(sizes, want) {
		t.Errorf("pipelines of %v draws, want %v", sizes, want)
	}
}

func isScript(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" }
