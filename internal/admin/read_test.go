package admin

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestATopicThatCannotBeReadSpoilsNoOther: topics are read together, and each has its own
// problems and counts.
func TestATopicThatCannotBeReadSpoilsNoOther(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	const topics = 2*countedAtOnce + 3 // read in several parts
	for i := range topics {
		topic := r.Store.Topic(fmt.Sprintf("topic-%03d", i))
		_, err := topic.Ensure(t.Context(), 1+i%3)
		check.OK(t, err)
		fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), fmt.Sprint("a", i), "b")...)
	}
	keyOf := func(key string) {
		t.Helper()
		check.OK(t, r.Client.Del(t.Context(), key).Err())
		check.OK(t, r.Client.Set(t.Context(), key, "text", 0).Err())
	}
	keyOf(r.Prefix + ":placement:{topic-007}")
	keyOf(r.Prefix + ":due:{topic-064:0}")
	s, err := ReadStatus(t.Context(), r.Store, "")
	check.OK(t, err)
	check.Equal(t, "topics", len(s.Topics), topics)
	for i, got := range s.Topics {
		var want []problem.Kind
		shards, pending := 1+i%3, int64(2)
		switch i {
		case 7:
			want, shards, pending = []problem.Kind{problem.TopicUnreadable}, 0, 0
		case 64:
			want, pending = []problem.Kind{problem.ShardsUnreadable}, got.Pending
		}
		if got.Topic != fmt.Sprintf("topic-%03d", i) || got.Shards != shards || got.Pending != pending ||
			!slices.Equal(got.Kinds, want) {
			t.Errorf("topic %d: %+v", i, got)
		}
	}
	if _, err := ReadStatus(t.Context(), r.Store, "topic-007"); err == nil {
		t.Error("a topic that can't be read has a status")
	}
}

// TestManyTopicsTakeAsManyRoundTripsAsFew, except for the counts of orphaned tasks and the progress
// of changes.
func TestManyTopicsTakeAsManyRoundTripsAsFew(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	reader := &Reader{Store: r.Store, OrphansEvery: time.Hour}
	var requests atomic.Int64
	faults.Before(r.Client, func(faults.Request) { requests.Add(1) })
	made := 0
	of := func(topics int) int64 {
		t.Helper()
		for ; made < topics; made++ {
			_, err := r.Store.Topic(fmt.Sprint("topic-", made)).Ensure(t.Context(), 2)
			check.OK(t, err)
		}
		_, err := reader.Read(t.Context(), "") // counts orphaned tasks
		check.OK(t, err)
		requests.Store(0)
		s, err := reader.Read(t.Context(), "")
		check.OK(t, err)
		check.Equal(t, "topics", len(s.Topics), topics)
		return requests.Load()
	}
	few := of(20)
	check.Equal(t, "requests for 60 topics", of(60), few)
}
