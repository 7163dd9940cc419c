package admin

import (
	"errors"
	"fmt"
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

func TestStatusTellsOfTwoPlacementsOfOneEpoch(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, p := r.Serve(t, 2)
	notes := func() []string {
		t.Helper()
		s, err := ReadStatus(t.Context(), r.Store, "orders")
		check.OK(t, err)
		return s.Topics[0].Notes
	}
	if got := notes(); len(got) != 0 {
		t.Errorf("notes of a healthy topic: %q", got)
	}
	lost := p
	lost.Shards = 3
	_, err := orders.Shard(1).Fence(t.Context(), lost)
	check.OK(t, err)
	got := notes()
	if len(got) != 1 || !strings.Contains(got[0], lost.String()) || !strings.Contains(got[0], p.String()) {
		t.Errorf("notes: %q", got)
	}
}

// TestStatusCountsOrphans: status finds a task in a shard that no scanner polls.
func TestStatusCountsOrphans(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 4)
	check.OK(t, r.Client.ZAdd(t.Context(), r.Prefix+":due:{orders:4000}", redis.Z{Score: 1, Member: "stray"}).Err())
	s, err := ReadStatus(t.Context(), r.Store, "")
	if err != nil || len(s.Topics) != 1 || s.Topics[0].Orphans != 1 || len(s.Topics[0].Notes) != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestAReaderCountsOrphansNowAndThen: the count is kept until its time is over, or the
// placement changes.
func TestAReaderCountsOrphansNowAndThen(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, p := r.Serve(t, 4)
	reader := &Reader{Store: r.Store, OrphansEvery: time.Hour}
	orphaned := func() int64 {
		t.Helper()
		s, err := reader.Read(t.Context(), "orders")
		check.OK(t, err)
		return s.Topics[0].Orphans
	}
	before := orphaned()
	check.OK(t, r.Client.ZAdd(t.Context(), r.Prefix+":due:{orders:4000}", redis.Z{Score: 1, Member: "stray"}).Err())
	kept := orphaned()
	_, err := orders.Begin(t.Context(), p, 3)
	check.OK(t, err)
	changed := orphaned()
	reader.OrphansEvery = 0
	if got := orphaned(); before != 0 || kept != 0 || changed != 1 || got != 1 {
		t.Errorf("%d, then %d, %d after a change, and %d", before, kept, changed, got)
	}
}

// TestAStatusOfManyTopicsCountsNoOrphans: only one of a topic that is named does.
func TestAStatusOfManyTopicsCountsNoOrphans(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 4)
	check.OK(t, r.Client.ZAdd(t.Context(), r.Prefix+":due:{orders:4000}", redis.Z{Score: 1, Member: "stray"}).Err())
	for i := range orphansMost {
		_, err := r.Store.Topic(fmt.Sprint("topic-", i)).Ensure(t.Context(), 1)
		check.OK(t, err)
	}
	for topic, want := range map[string]int64{"": 0, "orders": 1} {
		s, err := ReadStatus(t.Context(), r.Store, topic)
		check.OK(t, err)
		at := slices.IndexFunc(s.Topics, func(s TopicStatus) bool { return s.Topic == "orders" })
		check.Equal(t, "orphaned tasks with topic "+topic, s.Topics[at].Orphans, want)
	}
}

// TestAReaderSpreadsTheCountsOfOrphans: each reading counts a part of the topics, so the first
// one doesn't wait for all, and OrphansIn readings count each topic once.
func TestAReaderSpreadsTheCountsOfOrphans(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	for i := range 5 {
		name := fmt.Sprint("topic-", i)
		_, err := r.Store.Topic(name).Ensure(t.Context(), 4)
		check.OK(t, err)
		check.OK(t, r.Client.ZAdd(t.Context(), r.Prefix+":due:{"+name+":4000}", redis.Z{Score: 1, Member: "stray"}).Err())
	}
	reader := &Reader{Store: r.Store, OrphansEvery: time.Hour, OrphansIn: 3}
	for i, want := range []int64{2, 4, 5, 5} {
		s, err := reader.Read(t.Context(), "")
		check.OK(t, err)
		var got int64
		for _, topic := range s.Topics {
			got += topic.Orphans
		}
		if got != want {
			t.Errorf("%d orphaned tasks after reading %d, want %d", got, i+1, want)
		}
	}
}

var errDead = errors.New("dead")

// TestStatusTellsOfARemovalThatDied: a removal dies before each of its requests in turn. A
// task stored since its check is in status. If nobody delivers the task, status says so.
// Then another removal brings the topic back.
func TestStatusTellsOfARemovalThatDied(t *testing.T) {
	t.Parallel()
	lay := 0
	for at := 0; ; at++ {
		addr, prefix := servertest.Redis(t)
		prefix = fmt.Sprintf("%s:%d", prefix, at)
		topic, _ := ordersAt(t, addr, prefix)
		_, err := topic.Ensure(t.Context(), 2)
		check.OK(t, err)
		dying, removing := ordersAt(t, addr, prefix)
		faults.Die(removing, at, errDead)
		storeFar(t, topic)
		if _, err := (Removal{Topic: dying}).Run(t.Context()); !errors.Is(err, errDead) {
			break
		}
		s, err := ReadStatus(t.Context(), topic.Store(), "")
		if err != nil || len(s.Topics) != 1 || s.Topics[0].Pending != 1 {
			t.Fatalf("dead before request %d: status %+v, %v", at, s, err)
		}
		if s.Topics[0].Phase != shard.Removed {
			continue
		}
		lay++
		if said := fmt.Sprint(s.Topics[0].Notes); !strings.Contains(said, "1 tasks lie still") ||
			!strings.Contains(said, "scanner topic rm orders") {
			t.Errorf("dead before request %d: notes %s", at, said)
		}
		if _, err := ReadStatus(t.Context(), topic.Store(), "orders"); err != nil {
			t.Errorf("dead before request %d: status of it alone: %v", at, err)
		}
		if _, err := (Removal{Topic: topic}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it stays") {
			t.Errorf("dead before request %d: run again: %v", at, err)
		}
		if s, err = ReadStatus(t.Context(), topic.Store(), "orders"); err != nil || s.Topics[0].Phase == shard.Removed ||
			s.Topics[0].Pending != 1 {
			t.Errorf("dead before request %d and run again: status %+v, %v", at, s, err)
		}
	}
	if lay == 0 {
		t.Error("no removal died before its end")
	}
}

// storeFar stores a task that is due much later, as a producer does.
func storeFar(t *testing.T, topic *shard.Topic) {
	t.Helper()
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a")...)
}
