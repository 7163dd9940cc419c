//go:build chaos

package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

var (
	soakLength = flag.Duration("soak", 2*time.Minute, "how long the soak mixes faults")
	soakSeed   = flag.Uint64("seed", 0, "seed of the soak's faults, and of the whole application; 0 draws one")
)

// fault is a fault that a soak inflicts on one part for a while.
type fault struct {
	name string
	part string // a part has one fault at a time
	most time.Duration
	// strike begins the fault and fix ends it. draw is the number that the schedule drew
	// for this fault.
	strike, fix func(r *harness, draw int)
	// repeats is how many repeated messages the fault explains, and unmarked how many of
	// these need no redelivered mark.
	repeats, unmarked int
}

// faults returns the faults of the table that can be undone.
func faults() []fault {
	nothing := func(*harness, int) {}
	var all []fault
	for i := range soakScanners {
		part := fmt.Sprintf("scanner %d", i+1)
		all = append(all,
			fault{"kill -9", part, 3 * time.Second, func(r *harness, _ int) { r.must(r.scanners[i].Kill()) },
				func(r *harness, _ int) { r.again(r.scanners[i]) }, inFlight, 0},
			fault{"SIGSTOP", part, leaseTime + 4*time.Second, func(r *harness, _ int) { r.must(r.scanners[i].Pause()) },
				func(r *harness, _ int) { r.must(r.scanners[i].Resume()) }, inFlight, 0},
			fault{"SIGTERM", part, time.Second, func(r *harness, _ int) { r.terminate(i) },
				func(r *harness, _ int) { r.again(r.scanners[i]) }, 0, 0},
		)
	}
	everyone := soakScanners * inFlight
	return append(all,
		fault{"kill -9", "redis", 3 * time.Second, func(r *harness, _ int) { r.redisSteps.Add(1); r.must(r.redis.Kill()) },
			func(r *harness, _ int) { r.must(r.redis.Restart(context.Background())); r.redisSteps.Add(1) }, everyone,
			2 * loadBatch},
		fault{"connections reset", "redis", time.Second, func(r *harness, _ int) { r.toRedis.cut() }, nothing, 0, 0},
		fault{"latency", "redis", 5 * time.Second, func(r *harness, draw int) { r.toRedis.latency(draw) },
			func(r *harness, _ int) { r.toRedis.fix() }, 0, 0},
		fault{"SCRIPT FLUSH", "redis", time.Second, func(r *harness,
			_ int) {
			r.must(r.client.ScriptFlush(context.Background()).Err())
		}, nothing, 0, 0},
		fault{"kill -9", "rabbitmq", 3 * time.Second, func(r *harness, _ int) { r.killBroker() },
			func(r *harness, _ int) { r.must(r.rabbitmq.Restart(context.Background())) }, everyone, 0},
		fault{"connections reset", "rabbitmq", time.Second, func(r *harness, _ int) { r.toRabbit.cut() }, nothing, everyone,
			0},
		fault{"half-open", "rabbitmq", 14 * time.Second, func(r *harness, _ int) { r.toRabbit.silence() },
			func(r *harness, _ int) { r.toRabbit.fix(); r.toRabbit.cut() }, everyone, 0},
		fault{"latency", "rabbitmq", 5 * time.Second, func(r *harness, draw int) { r.toRabbit.latency(draw) },
			func(r *harness, _ int) { r.toRabbit.fix() }, 0, 0},
		fault{"memory alarm", "rabbitmq", 10 * time.Second, func(r *harness, _ int) { r.watermark("0") },
			func(r *harness, _ int) { r.watermark("0.4") }, everyone, 0},
		fault{"kill -9", "consul", 5 * time.Second, func(r *harness, _ int) { r.must(r.consul.Kill()) },
			func(r *harness, _ int) { r.must(r.consul.Restart(context.Background())) }, 0, 0},
		fault{"another M", "consul", 5 * time.Second, func(r *harness,
			draw int) {
			r.set("orders", fleet.Topic{"shards": 1 + draw%16})
		}, nothing, 0, 0},
		fault{"other settings", "consul", time.Second, func(r *harness, draw int) {
			r.set("orders", fleet.Topic{"tick": fmt.Sprintf("%dms", 50+draw%2000), "batch": 1 + draw%1000, "workers": draw % 9})
		}, nothing, 0, 0},
	)
}

// strike is one fault in a soak's schedule.
type strike struct {
	fault
	at, length time.Duration
	draw       int
}

// schedule draws the faults of a soak. The same seed and length give the same faults.
// Each part has its own sequence, with a pause after each fault.
func schedule(seed uint64, length time.Duration) []strike {
	byPart, parts := map[string][]fault{}, []string{}
	for _, f := range faults() {
		if byPart[f.part] == nil {
			parts = append(parts, f.part)
		}
		byPart[f.part] = append(byPart[f.part], f)
	}
	var all []strike
	for i, part := range parts {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // must be repeatable
		at := time.Duration(rng.Int64N(int64(5 * time.Second)))
		for at < length {
			f := byPart[part][rng.IntN(len(byPart[part]))]
			s := strike{f, at, time.Duration(1 + rng.Int64N(int64(f.most))), rng.Int()}
			all = append(all, s)
			at += s.length + 2*time.Second + time.Duration(rng.Int64N(int64(8*time.Second)))
		}
	}
	return all
}

const soakScanners = 3

// TestSoak: all faults mixed at random. -seed replays a schedule; -soak sets its length.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("the schedule of faults: go test -tags chaos ./test/chaos -run TestSoak -soak %s -seed %d", *soakLength, seed)
	r := newHarness(t, options{
		scanners: soakScanners, badRedis: true, badRabbit: true, consul: true,
		topic: fleet.Topic{"max_attempts": 1000, "backoff": map[string]any{"min": "100ms", "max": "1s"}},
	})
	r.begin()
	allowed := r.suffer(schedule(seed, *soakLength))
	r.checkMemory()
	r.verdict(fmt.Sprintf("soak of %s, all of these mixed", *soakLength), allowed)
}

// suffer executes a schedule, and returns the allowance for its faults.
func (r *harness) suffer(all []strike) (allowed allowance) {
	byPart := map[string][]strike{}
	for _, s := range all {
		byPart[s.part] = append(byPart[s.part], s)
		allowed.repeats += s.repeats
		allowed.unmarked += s.unmarked
	}
	began := time.Now()
	var parts sync.WaitGroup
	for _, strikes := range byPart {
		parts.Go(func() {
			for _, s := range strikes {
				r.lasts(time.Until(began.Add(s.at)))
				r.t.Logf("%6s %s: %s for %s", time.Since(began).Round(100*time.Millisecond), s.part, s.name,
					s.length.Round(time.Millisecond))
				s.strike(r, s.draw)
				r.lasts(s.length)
				s.fix(r, s.draw)
			}
		})
	}
	parts.Wait()
	return allowed
}

func (r *harness) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// terminate stops a scanner with SIGTERM. A scanner that can't reach Redis tries for
// settleTime, and its exit code then says that tasks wait for their leases.
func (r *harness) terminate(i int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began, steps := time.Now(), r.redisSteps.Load()
	code, err := r.scanners[i].Stop(ctx)
	took, away := time.Since(began), steps%2 == 1 || r.redisSteps.Load() != steps
	if err != nil || code != 0 && (!away || took < settleTime) {
		r.t.Errorf("SIGTERM of scanner %d: code %d after %s, %v; Redis was away: %t", i+1, code, took, err, away)
	}
}

// killBroker kills RabbitMQ. This version of RabbitMQ can lose recent declarations.
func (r *harness) killBroker() {
	r.t.Helper()
	_, err := r.rabbitmq.Ctl(context.Background(), "eval", "mnesia:dump_log().")
	r.must(err)
	r.must(r.rabbitmq.Kill())
}

func (r *harness) watermark(share string) {
	r.t.Helper()
	_, err := r.rabbitmq.Ctl(context.Background(), "set_vm_memory_high_watermark", share)
	r.must(err)
}

// TestScheduleReplays: a seed always gives the same schedule, another seed gives another
// one, and each part has one fault at a time.
func TestScheduleReplays(t *testing.T) {
	text := func(seed uint64) string {
		var b strings.Builder
		ends := map[string]time.Duration{}
		for _, s := range schedule(seed, time.Hour) {
			fmt.Fprintln(&b, s.part, s.name, s.at, s.length, s.draw)
			if s.at < ends[s.part] {
				t.Errorf("%s: %s begins before the fault before it ends", s.part, s.name)
			}
			ends[s.part] = s.at + s.length
		}
		return b.String()
	}
	if first := text(1); first != text(1) || first == text(2) {
		t.Error("the same seed gives different schedules")
	}
}
