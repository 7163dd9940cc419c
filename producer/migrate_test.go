package producer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

func TestAProducerThatSleptThroughAChangeRefreshesByItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.informed()
	want := map[string]bool{}
	var requests []Request
	for i := range 100 {
		requests = append(requests, request(fmt.Sprint("o-", i), In(time.Hour)))
		want[requests[i].ID] = true
	}
	for _, r := range c.ScheduleMany(f.t.Context(), requests) {
		check.OK(f.t, r.Err)
	}
	slept := f.informed()
	for _, shards := range []int{5, 3} {
		f.begin(shards)
		f.move()
	}
	for _, r := range requests[:50] {
		s, err := slept.Get(f.t.Context(), orders, r.ID)
		check.OK(f.t, err)
		check.Equal(t, "payload", string(s.Payload), string(r.Payload))
	}
	slept = f.client()
	slept.routers.Topic(orders).Assume(c.routers.Topic(orders).Known())
	for _, r := range slept.ScheduleMany(f.t.Context(), requests) {
		check.OK(f.t, r.Err)
	}
	f.inPlace(want)
}

func TestARemovedTopicIsUnknownToAProducerThatKnewIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.informed()
	_, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	before := c.routers.Topic(orders).Known()
	done, err := f.Remove(f.t.Context(), f.placement())
	check.OK(f.t, err)
	check.Equal(t, "removed", done, true)
	stale := func() *Client {
		s := f.client()
		s.routers.Topic(orders).Assume(before)
		return s
	}
	_, err = stale().Schedule(f.t.Context(), request("b", In(time.Hour)))
	is(t, err, task.ErrUnknownTopic, orders)
	_, err = stale().Get(f.t.Context(), orders, "a")
	is(t, err, task.ErrUnknownTopic)
	_, err = stale().Reschedule(f.t.Context(), orders, "a", Now())
	is(t, err, task.ErrUnknownTopic)
	is(t, stale().Cancel(f.t.Context(), orders, "a"), task.ErrUnknownTopic)

	_, err = f.Ensure(f.t.Context(), 3)
	check.OK(f.t, err)
	_, err = stale().Schedule(f.t.Context(), request("b", In(time.Hour)))
	check.OK(f.t, err)
}

func TestATopicWhoseRemovalWasInterruptedIsUnknownOnceItIsFinished(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	stale := f.informed()
	gone := f.placement()
	gone.Epoch, gone.Phase = gone.Epoch+1, shard.Removed
	check.OK(f.t, f.rdb.HSet(f.t.Context(), f.prefix+":placement:{"+orders+"}", "value", gone.String()).Err())
	left, err := f.Placement(f.t.Context())
	is(t, err, task.ErrUnknownTopic)
	done, err := f.Remove(f.t.Context(), left)
	check.OK(f.t, err)
	check.Equal(t, "removed", done, true)
	for _, r := range stale.ScheduleMany(f.t.Context(), []Request{request("a", Now()), request("b", Now()),
		request("c", Now())}) {
		is(t, r.Err, task.ErrUnknownTopic, orders)
	}
	check.Equal(t, "tasks stored", len(f.stored(0))+len(f.stored(1)), 0)
}

// trips counts the round trips with scripts, and the scripts that Redis refused because
// they were late.
type trips struct{ n, late atomic.Int64 }

func (c *trips) count(r faults.Request) {
	if strings.HasPrefix(r.Commands[0].Name(), "eval") {
		c.n.Add(1)
	}
	for _, cmd := range r.Commands {
		script, ok := cmd.(interface{ Slice() ([]any, error) })
		if !ok {
			continue
		}
		if reply, _ := script.Slice(); len(reply) > 0 && reply[0] == "late" {
			c.late.Add(1)
		}
	}
}

// TestScheduleManyDuringAChangeTakesThreeRoundTrips, for any number of shards. First the
// old shards are fenced, unless they are known to be. Then the new shards store the tasks
// and note the moving ones. Last the old shards remove them.
func TestScheduleManyDuringAChangeTakesThreeRoundTrips(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]int{{1, 64}, {16, 3}} {
		for _, absent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d to %d, if-absent %t", change[0], change[1], absent), func(t *testing.T) {
				t.Parallel()
				scheduleManyDuringAChange(t, change[0], change[1], absent)
			})
		}
	}
}

func scheduleManyDuringAChange(t *testing.T, from, to int, absent bool) {
	check.Until(t, "no script comes late", func() bool { return scheduleManyInTime(t, from, to, absent) })
}

// scheduleManyInTime reports whether no script was late and had to be sent again.
func scheduleManyInTime(t *testing.T, from, to int, absent bool) bool {
	f := newFleet(t, from)
	p := f.begin(to)
	c := f.informed()
	var requests []Request
	want := map[string]bool{}
	for i := range 2000 {
		r := request(fmt.Sprint("o-", i), In(time.Hour))
		r.IfAbsent = absent
		requests, want[r.ID] = append(requests, r), true
	}
	first := request(splitID(p, 0), In(time.Hour))
	first.IfAbsent = absent
	check.OK(f.t, c.ScheduleMany(f.t.Context(), []Request{first})[0].Err) // Redis knows the scripts
	check.OK(f.t, c.Cancel(f.t.Context(), orders, first.ID))
	var counted trips
	faults.After(f.rdb, counted.count)
	for _, r := range c.ScheduleMany(f.t.Context(), requests) {
		check.OK(f.t, r.Err)
	}
	inTime := counted.late.Load() == 0
	if n := counted.n.Load(); inTime && n > 3 {
		t.Errorf("%d round trips for %d tasks, want at most 3", n, len(requests))
	}
	if absent {
		for _, r := range c.ScheduleMany(f.t.Context(), requests) {
			is(t, r.Err, task.ErrExists)
		}
	}
	f.inPlace(want)
	handled := map[string]bool{}
	for n := range p.Shards {
		for _, id := range f.rdb.SMembers(f.t.Context(), fmt.Sprintf("%s:handled:{%s:%d}", f.prefix, orders, n)).Val() {
			handled[id] = true
		}
	}
	for id := range want {
		if handled[id] != p.Moving(id) {
			t.Errorf("%q is noted as handled: %t, want %t", id, handled[id], p.Moving(id))
		}
	}
	return inTime
}

// TestCallsGoOnUnderAPlacementThatRedisLost: a producer uses the placement that a shard
// has seen. The scanners restore the placement in Redis.
func TestCallsGoOnUnderAPlacementThatRedisLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	lost := f.placement()
	key := f.prefix + ":placement:{" + orders + "}"
	value, err := f.rdb.HGetAll(f.t.Context(), key).Result()
	check.OK(f.t, err)
	f.begin(3)
	f.move()
	ahead := f.placement()
	check.OK(f.t, f.rdb.Del(f.t.Context(), key).Err())
	check.OK(f.t, f.rdb.HSet(f.t.Context(), key, value).Err())
	_, err = f.client().Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	check.Equal(t, "placement after the failover", f.placement(), lost)
	check.OK(f.t, f.Restore(f.t.Context(), ahead))
	f.inPlace(map[string]bool{"a": true})
}

// TestNothingIsLostOrBroughtBackWhileShardsChange runs producers through four changes.
// Each schedules, cancels and moves its own tasks. Then the test compares the stored
// tasks with the results of the calls.
func TestNothingIsLostOrBroughtBackWhileShardsChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	const producers, ids = 4, 25
	stop := make(chan struct{})
	told := make([]map[string]string, producers) // ID -> payload
	var all sync.WaitGroup
	for n := range producers {
		told[n] = map[string]string{}
		c := f.client()
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := step(f, c, told[n], fmt.Sprintf("p%d-%d", n, rand.IntN(ids)), i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, shards := range []int{2, 5, 3, 1} {
		f.begin(shards)
		f.move()
	}
	close(stop)
	all.Wait()
	want := map[string]bool{}
	for _, mine := range told {
		for id, payload := range mine {
			want[id] = true
			s, err := f.informed().Get(f.t.Context(), orders, id)
			check.OK(f.t, err)
			check.Equal(t, "payload of "+id, string(s.Payload), payload)
		}
	}
	f.inPlace(want)
}

// step makes one call on a task, and records the expected state.
func step(f *fleet, c *Client, mine map[string]string, id string, i int) error {
	_, there := mine[id]
	switch rand.IntN(4) {
	case 0:
		if err := c.Cancel(f.t.Context(), orders, id); (err == nil) != there {
			return fmt.Errorf("cancel %s, there %t: %w", id, there, err)
		}
		delete(mine, id)
	case 1:
		if _, err := c.Reschedule(f.t.Context(), orders, id, In(time.Hour)); (err == nil) != there {
			return fmt.Errorf("reschedule %s, there %t: %w", id, there, err)
		}
	case 2:
		if _, err := c.Get(f.t.Context(), orders, id); (err == nil) != there {
			return fmt.Errorf("get %s, there %t: %w", id, there, err)
		}
	default:
		mine[id] = fmt.Sprint(i)
		r := Request{Topic: orders, ID: id, When: In(time.Hour), Payload: []byte(mine[id])}
		if _, err := c.Schedule(f.t.Context(), r); err != nil {
			return fmt.Errorf("schedule %s: %w", id, err)
		}
	}
	return nil
}

// TestACallThatStoredNothingAnswersNoDueTime: too few replicas have seen the placement,
// so the task stays at its old shard.
func TestACallThatStoredNothingAnswersNoDueTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	p := f.begin(3)
	id := splitID(p, 0)
	c, err := New(Config{Redis: f.rdb, Prefix: f.prefix, MinReplicas: 5})
	check.OK(f.t, err)
	due, err := c.Reschedule(f.t.Context(), orders, id, In(time.Minute))
	is(t, err, task.ErrReplicas, "fence")
	check.Equal(t, "due of a reschedule", due, time.Time{})
	due, err = c.Schedule(f.t.Context(), request(id, In(time.Minute)))
	is(t, err, task.ErrReplicas, "fence")
	check.Equal(t, "due of a schedule", due, time.Time{})
	_, err = c.Get(f.t.Context(), orders, id)
	is(t, err, task.ErrNotFound)
}

// Redis lost a change of the shard count, and another began under the same epoch. No call
// may take effect under only one of the two, and each error says why.
func TestTwoPlacementsOfOneEpochAreAnError(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	informed := f.informed()
	before := f.placement()
	lost := f.begin(3)
	other := lost
	other.Shards = 4
	check.OK(f.t, f.rdb.HSet(f.t.Context(), f.prefix+":placement:{"+orders+"}", "value", other.String()).Err())
	stale := f.client()
	stale.routers.Topic(orders).Assume(before)
	for _, c := range []*Client{f.client(), informed, stale} {
		id := splitID(lost, 0)
		_, err := c.Schedule(f.t.Context(), request(id, In(time.Hour)))
		is(t, err, task.ErrForked, lost.String(), other.String())
		_, err = c.Reschedule(f.t.Context(), orders, id, In(time.Hour))
		is(t, err, task.ErrForked)
		is(t, c.Cancel(f.t.Context(), orders, id), task.ErrForked)
		_, err = c.Get(f.t.Context(), orders, id)
		is(t, err, task.ErrForked)
	}
	check.Equal(t, "placement", f.placement(), other)
	f.inPlace(map[string]bool{})

	// As docs/operate.md says.
	fixed := shard.Placement{Epoch: other.Epoch + 1, Shards: 4, Previous: 4, Phase: shard.Migrating}
	check.OK(f.t, f.rdb.HSet(f.t.Context(), f.prefix+":placement:{"+orders+"}", "value", fixed.String()).Err())
	_, err := stale.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	f.move()
	f.inPlace(map[string]bool{"a": true})
}
