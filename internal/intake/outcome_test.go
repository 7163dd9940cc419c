package intake

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestAnIntakesAnswerAfterALostReplySaysMaybe: the first copy of a cancel removes the task, and the second
// finds none.
func TestAnIntakesAnswerAfterALostReplySaysMaybe(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	script, err := shard.Script("delete")
	check.OK(t, err)
	check.OK(t, h.redis.Client.ScriptLoad(t.Context(), script).Err())
	var armed atomic.Bool
	h.redis.Store = h.breakable(func(r faults.Request) bool {
		runs := func(c redis.Cmder) bool { return faults.Runs(c, script) }
		return slices.ContainsFunc(r.Commands, runs) && armed.Swap(false)
	})
	h.start()
	h.publish(newMessage("a", HeaderIn, "1h"))
	h.settled()
	to := h.answers()
	armed.Store(true)
	h.publish(request(to, "lost", "a", Cancel))
	got, of := h.answer(to)
	check.Equal(t, "the answer after a lost reply to "+of, got, reply{Code: codeNotFound, Done: "maybe"})
	check.Equal(t, "a reply was lost", armed.Load(), false)
	h.publish(request(to, "again", "a", Cancel))
	got, of = h.answer(to)
	check.Equal(t, "the answer to "+of, got, reply{Code: codeNotFound})
}

// TestOutcomes: what Redis says in each try, and the answer after the last one.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	notFound, exists := task.ErrNotFound, task.ErrExists
	again := func(err error) error { return errors.Join(err, router.ErrRepeated) }
	for name, row := range map[string]struct {
		tries []error
		code  string
		maybe bool
	}{
		"done":                          {[]error{nil}, codeOK, false},
		"no task":                       {[]error{notFound}, codeNotFound, false},
		"another task":                  {[]error{exists}, codeExists, false},
		"a repeat finds none":           {[]error{again(notFound)}, codeNotFound, true},
		"a repeat finds another":        {[]error{again(exists)}, codeExists, true},
		"uncertain, then none":          {[]error{task.ErrUncertain, notFound}, codeNotFound, true},
		"uncertain, then another":       {[]error{task.ErrUncertain, exists}, codeExists, true},
		"uncertain, then done":          {[]error{task.ErrUncertain, nil}, codeOK, false},
		"certainly not done, then none": {[]error{task.ErrUnavailable, notFound}, codeNotFound, false},
		"removed on the master":         {[]error{errors.Join(task.ErrReplicas, router.ErrRemoved), notFound}, codeOK, false},
		"removed on the master, repeated": {[]error{errors.Join(task.ErrReplicas, router.ErrRemoved), again(notFound)},
			codeOK, false},
	} {
		it := &item{}
		for i, err := range row.tries {
			last := i == len(row.tries)-1
			if left := it.outcome(0, err); (left == nil) != last {
				t.Errorf("%s: try %d: %v", name, i, left)
			}
		}
		if it.code != row.code || it.maybe != row.maybe {
			t.Errorf("%s: code %s, maybe %t", name, it.code, it.maybe)
		}
	}
}
