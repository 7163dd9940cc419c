package admin

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// parkAgain parks all due tasks of a shard again before each request of a client, as
// happens without a queue. The client doesn't read parked tasks. It returns how many tasks
// it parked so far.
func parkAgain(t *testing.T, client, rdb redis.UniversalClient, due string) (n *int) {
	n = new(int)
	faults.Before(client, func(faults.Request) {
		ctx := t.Context()
		waiting, err := rdb.ZRangeByScore(ctx, due, &redis.ZRangeBy{Min: "0", Max: "(+inf"}).Result()
		for _, id := range waiting {
			err = errors.Join(err, rdb.ZAdd(ctx, due, redis.Z{Score: math.Inf(1), Member: id}).Err())
			*n++
		}
		if err != nil {
			t.Error(err)
		}
	})
	return n
}

// attic is a topic of four shards with many parked tasks.
type attic struct {
	t      *testing.T
	prefix string
	rdb    redis.UniversalClient // the test's own
	client redis.UniversalClient
	topic  *shard.Topic // by client
}

func newAttic(t *testing.T) *attic {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	a := &attic{t: t, prefix: prefix}
	_, a.rdb = ordersAt(t, addr, prefix)
	a.topic, a.client = ordersAt(t, addr, prefix)
	_, err := a.topic.Ensure(t.Context(), 4)
	check.OK(t, err)
	return a
}

func (a *attic) key(what string, at int) string {
	return fmt.Sprintf("%s:%s:{orders:%d}", a.prefix, what, at)
}

// fill parks n tasks in a shard, with realistic records.
func (a *attic) fill(at, n int) {
	a.t.Helper()
	p := fixture.Placement(a.t, a.topic)
	ids := fixture.Belonging(p, at, n)
	for batch := range slices.Chunk(ids, shard.MaxBatch) {
		fixture.Put(a.t, a.topic, p, at, fixture.Entries(task.In(time.Hour), []byte{0}, batch...)...)
		for _, id := range batch {
			a.park(at, id)
		}
	}
}

func (a *attic) park(at int, id string) {
	a.t.Helper()
	check.OK(a.t, a.rdb.ZAdd(a.t.Context(), a.key("due", at), redis.Z{Score: math.Inf(1), Member: id}).Err())
}

// spoil parks n tasks with unreadable records in front of a shard's others.
func (a *attic) spoil(at, n int) {
	a.t.Helper()
	p, err := a.topic.Placement(a.t.Context())
	check.OK(a.t, err)
	for i := 0; n > 0; i++ {
		id := fmt.Sprintf("bad-%04d", i)
		if p.New(id) != at {
			continue
		}
		n--
		check.OK(a.t, a.rdb.HSet(a.t.Context(), a.key("task", at), id, "\x10cut").Err())
		a.park(at, id)
	}
}

// parked returns how many tasks are parked in the shard that tests fill.
func (a *attic) parked() int64 {
	a.t.Helper()
	n, err := a.rdb.ZCount(a.t.Context(), a.key("due", 1), "+inf", "+inf").Result()
	check.OK(a.t, err)
	return n
}

// TestAReplayOfAllIsOverThoughAllIsParkedAgain: a replay makes each task due once and ends.
func TestAReplayOfAllIsOverThoughAllIsParkedAgain(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	const n = 2*parkedPage + 7
	a.fill(1, n)
	again := parkAgain(t, a.client, a.rdb, a.key("due", 1))
	told := int64(0)
	replayed, err := Parked{Topic: a.topic, Progress: func(visited,
		of int64) {
		told = visited*1e6 + of
	}}.Replay(t.Context(), "")
	if replayed != n || err != nil {
		t.Errorf("replayed %d, %v; want %d", replayed, err, n)
	}
	if *again < 2*parkedPage {
		t.Errorf("%d were parked again: that is none", *again)
	}
	if told != n*1e6+n {
		t.Errorf("progress at the end: %d", told)
	}
}

// TestRecordsThatCannotBeReadHideNoOthers: a replay leaves 600 of them parked, counts and
// names them, and reaches the others. A purge removes all. An unreadable shard is named.
func TestRecordsThatCannotBeReadHideNoOthers(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	a.spoil(1, 600)
	a.fill(1, 20)
	a.fill(3, 20)
	check.OK(t, a.rdb.Set(t.Context(), a.key("due", 2), "in the way", 0).Err())
	parked := Parked{Topic: a.topic}
	listed := 0
	err := parked.Each(t.Context(), func(shard.Record) bool { listed++; return true })
	if unreadable := shard.Unreadable(err); listed != 640 || len(unreadable) != 1 || unreadable[0].Shard != 2 {
		t.Errorf("listed %d, %v", listed, err)
	}
	one := ""
	for round, want := range []int{40, 0} {
		n, err := parked.Replay(t.Context(), "")
		var left *LeftError
		if n != want || !errors.As(err, &left) || left.Tasks != 600 || len(left.IDs) != 10 {
			t.Fatalf("round %d: replayed %d, %v", round, n, err)
		}
		one = left.IDs[0]
		if text := err.Error(); !strings.Contains(text, ` and 590 more: record of 4 bytes is cut short`) ||
			!strings.Contains(text, "shard 2") {
			t.Errorf("it says %s", text)
		}
		if n := a.parked(); n != 600 {
			t.Errorf("%d are parked, want 600", n)
		}
	}
	check.OK(t, a.rdb.Del(t.Context(), a.key("due", 2)).Err())
	var left *LeftError
	if n, err := parked.Replay(t.Context(), one); n != 0 || !errors.As(err, &left) || left.Tasks != 1 {
		t.Errorf("one of them replayed: %d, %v", n, err)
	}
	if n, err := parked.Purge(t.Context(), ""); n != 600 || err != nil || a.parked() != 0 {
		t.Errorf("purged %d, %v", n, err)
	}
}

// TestParkedTasksAreChangedByReasonAndAge: only selected tasks are changed, and Count
// returns the same number.
func TestParkedTasksAreChangedByReasonAndAge(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	a.spoil(2, 3)
	const n = parkedPage + 50
	p, err := a.topic.Placement(t.Context())
	check.OK(t, err)
	var ids []string
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprint("o-", i); p.New(id) == 1 {
			ids = append(ids, id)
			fixture.Store(t, a.topic, shard.Entry{ID: id, When: task.Now(), Body: []byte{0}})
		}
	}
	b, err := a.topic.Shard(1).Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: shard.MaxBatch,
		Lease: time.Hour})
	if err != nil || len(b.Tasks) != n {
		t.Fatalf("claimed %d, %v", len(b.Tasks), err)
	}
	var back []shard.Release
	for i, c := range b.Tasks {
		reason := "returned: 312 NO_ROUTE"
		if i%2 == 0 {
			reason = "handler failed"
		}
		back = append(back, shard.Release{Lease: shard.Lease{ID: c.ID, Token: c.Token}, Park: true, Reason: reason})
	}
	if released, err := a.topic.Shard(1).Release(t.Context(), back); err != nil || released != n {
		t.Fatalf("parked %d, %v", released, err)
	}
	now, err := a.topic.Now(t.Context())
	check.OK(t, err)
	soon, before := time.UnixMilli(now+1), time.UnixMilli(now).Add(-time.Hour)
	for _, c := range []struct {
		filter ParkedFilter
		want   int64
	}{
		{ParkedFilter{}, n + 3},
		{ParkedFilter{Reason: "NO_ROUTE"}, n / 2},
		{ParkedFilter{Reason: "cut short"}, 3},
		{ParkedFilter{NoReason: true}, 0},
		{ParkedFilter{Before: soon}, n},
		{ParkedFilter{Before: before}, 0},
		{ParkedFilter{Reason: "handler", Before: soon}, n / 2},
	} {
		if got, err := (Parked{Topic: a.topic, Filter: c.filter}).Count(t.Context()); got != c.want || err != nil {
			t.Errorf("%+v: counted %d, %v, want %d", c.filter, got, err, c.want)
		}
	}
	if got, err := (Parked{Topic: a.topic, Filter: ParkedFilter{Before: before}}).Purge(t.Context(), ""); got != 0 ||
		err != nil {
		t.Errorf("purged %d, %v", got, err)
	}
	if got, err := (Parked{Topic: a.topic, Filter: ParkedFilter{Reason: "NO_ROUTE"}}).Replay(t.Context(),
		""); got != n/2 || err != nil {
		t.Errorf("replayed %d, %v", got, err)
	}
	if got, err := (Parked{Topic: a.topic, Filter: ParkedFilter{Reason: "handler", Before: soon}}).Purge(t.Context(),
		""); got != n/2 || err != nil || a.parked() != 0 {
		t.Errorf("purged %d, %v, left %d", got, err, a.parked())
	}
	if got, err := (Parked{Topic: a.topic, Filter: ParkedFilter{Reason: "cut short"}}).Purge(t.Context(), ""); got != 3 ||
		err != nil {
		t.Errorf("purged %d, %v", got, err)
	}
}
