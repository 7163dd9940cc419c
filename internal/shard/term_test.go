package shard

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// ofTerm returns the calls that an intake sends for the task "there", by their scripts.
func ofTerm(c *sandbox, term Term) map[string]func() error {
	return map[string]func() error{
		"put": func() error {
			return c.tryPut(c.p, Put{Term: term, Entries: []Entry{entry("there", task.In(time.Hour))}}).Err
		},
		"delete": func() error {
			one := []Deletion{{Names: Names{IDs: []string{"there"}}, Term: term}}
			return c.Withdraw(c.t.Context(), c.p, c.notAfter(), one)[0].Err
		},
		"reschedule": func() error {
			m := Move{Op: NewOp(), ID: "there", When: task.In(time.Minute), Term: term}
			_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), m)
			return err
		},
	}
}

// latest returns the latest term.
func (c *sandbox) latest() Term {
	c.t.Helper()
	term, p, err := c.LatestTerm(c.t.Context())
	check.OK(c.t, err)
	check.Equal(c.t, "placement", p, c.p)
	return term
}

// TestATermFollowsTheLatest: nobody begins one who doesn't know the latest, because another one began
// it meanwhile.
func TestATermFollowsTheLatest(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	check.Equal(t, "the latest term of a new topic", c.latest(), 0)
	first, _, err := c.BeginTerm(c.t.Context(), 0)
	check.OK(t, err)
	for _, unknown := range []Term{0, first - 1, first + 1} {
		if _, _, err := c.BeginTerm(c.t.Context(), unknown); !errors.Is(err, ErrStale) {
			t.Errorf("a term that follows %d began after %d: got %v", unknown, first, err)
		}
	}
	check.Equal(t, "the latest term", c.latest(), first)
	second, _, err := c.BeginTerm(c.t.Context(), first)
	check.OK(t, err)
	if second <= first {
		t.Errorf("term %d follows %d", second, first)
	}
}

// TestAShardRefusesAnEarlierTerm, and one that it hasn't seen. A refused call changes
// nothing. Calls without a term are carried out.
func TestAShardRefusesAnEarlierTerm(t *testing.T) {
	t.Parallel()
	for name := range ofTerm(nil, 0) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			c.put(task.Now(), "there")
			earlier, _, err := c.BeginTerm(c.t.Context(), c.latest())
			check.OK(c.t, err)
			before := c.everything()
			if err := ofTerm(c, earlier)[name](); !errors.Is(err, ErrUnraised) {
				t.Errorf("not raised: got %v", err)
			}
			check.Equal(t, "nothing was written", maps.Equal(c.everything(), before), true)
			check.OK(c.t, c.RaiseTerm(c.t.Context(), earlier, 0, c.p))
			later, p, err := c.BeginTerm(c.t.Context(), c.latest())
			check.OK(c.t, err)
			if p != c.p || later <= earlier {
				t.Errorf("term %d after %d, placement %q", later, earlier, p)
			}
			check.OK(c.t, c.RaiseTerm(c.t.Context(), later, earlier, c.p))
			before = c.everything()
			if err := ofTerm(c, earlier)[name](); !errors.Is(err, ErrSuperseded) {
				t.Errorf("superseded: got %v", err)
			}
			if err := c.RaiseTerm(c.t.Context(), earlier, 0, c.p); !errors.Is(err, ErrSuperseded) {
				t.Errorf("raise a superseded term: got %v", err)
			}
			check.Equal(t, "nothing was written", maps.Equal(c.everything(), before), true)
			check.OK(c.t, ofTerm(c, later)[name]())
			c.put(task.Now(), "there")
			check.OK(c.t, ofTerm(c, 0)[name]())
		})
	}
}

// TestATermIsLaterThanOneThatRedisLost: a failover may lose the last terms of a topic, while
// shards on other servers have seen them.
func TestATermIsLaterThanOneThatRedisLost(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	lost, _, err := c.BeginTerm(c.t.Context(), c.latest())
	check.OK(c.t, err)
	check.OK(c.t, c.rdb.HDel(c.t.Context(), c.placementKey(), "intake").Err())
	if _, err := c.PlacementIn(c.t.Context(), lost); !errors.Is(err, ErrSuperseded) {
		t.Errorf("a term that Redis lost: got %v", err)
	}
	next, _, err := c.BeginTerm(c.t.Context(), c.latest())
	check.OK(c.t, err)
	if next <= lost {
		t.Errorf("term %d follows %d", next, lost)
	}
	p, err := c.PlacementIn(c.t.Context(), next)
	check.OK(c.t, err)
	check.Equal(t, "placement", p, c.p)
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "intake",
		"9000000000000000").Err()) // Redis's clock was set back
	next, _, err = c.BeginTerm(c.t.Context(), c.latest())
	check.OK(c.t, err)
	check.Equal(t, "the term after a clock was set back", next, 9000000000000001)
}

// TestAShardKnowsATermThatRedisLost: a failover loses the latest term of a topic, but not its shard. A
// term then begins that follows the one before. The shard refuses it, as a scanner may have it that
// stalled meanwhile. The term after it is a good one.
func TestAShardKnowsATermThatRedisLost(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	first, _, err := c.BeginTerm(c.t.Context(), 0)
	check.OK(t, err)
	lost, _, err := c.BeginTerm(c.t.Context(), first)
	check.OK(t, err)
	check.OK(t, c.RaiseTerm(c.t.Context(), lost, first, c.p))
	check.OK(t, c.rdb.HSet(c.t.Context(), c.placementKey(), "intake", first.String()).Err())
	check.OK(t, c.rdb.HDel(c.t.Context(), c.Shard(0).fence(), "intake").Err())
	stalled, _, err := c.BeginTerm(c.t.Context(), first)
	check.OK(t, err)
	if err := c.RaiseTerm(c.t.Context(), stalled, first, c.p); !errors.Is(err, ErrStale) {
		t.Errorf("the shard has seen %d, got %v for %d after %d", lost, err, stalled, first)
	}
	check.Equal(t, "the term that the shard knows", c.rdb.HGet(c.t.Context(), c.Shard(1).fence(), "intake").Val(),
		lost.String())
	next, _, err := c.BeginTerm(c.t.Context(), c.latest())
	check.OK(t, err)
	check.OK(t, c.RaiseTerm(c.t.Context(), next, stalled, c.p))
}

// TestATopicThatIsGoneHasNoTerm, and asking for one leaves no key behind.
func TestATopicThatIsGoneHasNoTerm(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	nothing := c.store.Topic("nothing")
	if _, _, err := nothing.BeginTerm(c.t.Context(), 0); !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("got %v", err)
	}
	if n := c.rdb.Exists(c.t.Context(), nothing.placementKey()).Val(); n != 0 {
		t.Error("there is a placement")
	}
}
