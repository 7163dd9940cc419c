package bulk

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// stock is a topic with tasks in each state.
type stock struct {
	*fixture.Redis
	t     *testing.T
	topic *shard.Topic
}

func newStock(t *testing.T, shards int) *stock {
	t.Helper()
	return stockIn(t, fixture.New(t), shards)
}

func stockIn(t *testing.T, r *fixture.Redis, shards int) *stock {
	t.Helper()
	topic, _ := r.Serve(t, shards)
	return &stock{r, t, topic}
}

// names returns IDs that begin with prefix.
func names(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return ids
}

func (s *stock) put(when task.When, ids ...string) {
	s.t.Helper()
	fixture.Store(s.t, s.topic, fixture.Entries(when, []byte{0}, ids...)...)
}

// claim claims due tasks of all shards, at most limit of each.
func (s *stock) claim(limit int) (claimed []shard.Claimed, at map[string]shard.Shard) {
	s.t.Helper()
	at = map[string]shard.Shard{}
	for n := range fixture.Placement(s.t, s.topic).Scanned() {
		b, err := s.topic.Shard(n).Claim(s.t.Context(), shard.Claim{Claimant: "w", Request: string(shard.NewOp()),
			Limit: limit, Lease: time.Hour})
		check.OK(s.t, err)
		for _, c := range b.Tasks {
			claimed, at[c.ID] = append(claimed, c), s.topic.Shard(n)
		}
	}
	return claimed, at
}

// release stores tasks and gives them back after an attempt that failed: for a retry after
// an hour, or parked.
func (s *stock) release(park bool, ids ...string) {
	s.t.Helper()
	s.put(task.Now(), ids...)
	claimed, at := s.claim(shard.MaxBatch)
	check.Equal(s.t, "claimed", len(claimed), len(ids))
	for _, c := range claimed {
		n, err := at[c.ID].Release(s.t.Context(), []shard.Release{{Lease: shard.Lease{ID: c.ID, Token: c.Token},
			Attempted: true, Delay: time.Hour, Park: park, Reason: "no queue"}})
		check.OK(s.t, err)
		check.Equal(s.t, "released", n, 1)
	}
}

func (s *stock) get(id string) (shard.Stored, error) {
	return router.New(s.Store).Topic(fixture.Orders).Get(s.t.Context(), id)
}

// must returns a task that is stored.
func (s *stock) must(id string) shard.Stored {
	s.t.Helper()
	stored, err := s.get(id)
	check.OK(s.t, err)
	return stored
}

// run runs a change, which must end with no error and these counts.
func (s *stock) run(c Change, f Filter, want Counts) {
	s.t.Helper()
	got, err := s.change(c, f, nil)
	check.OK(s.t, err)
	check.Equal(s.t, fmt.Sprintf("%s%s", c.Verb, f), got, want)
}

func (s *stock) change(c Change, f Filter, progress func(Counts)) (Counts, error) {
	c.Topic = s.topic
	if c.Op == "" {
		c.Op = shard.NewOp()
	}
	return Run(s.t.Context(), c, f, progress)
}

// copies returns how many tasks all shards hold.
func (s *stock) copies() (n int64) {
	s.t.Helper()
	for at := range fixture.Placement(s.t, s.topic).Scanned() {
		n += s.Client.ZCard(s.t.Context(), fmt.Sprintf("%s:due:{orders:%d}", s.Prefix, at)).Val()
	}
	return n
}
