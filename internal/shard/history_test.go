package shard

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// historyWindow is short, so that fields outlive it while a test runs, and longer than
// the pause between two calls.
const historyWindow = 50 * time.Millisecond

func (c *sandbox) fields() int64 {
	c.t.Helper()
	n, err := c.rdb.HLen(c.t.Context(), c.historyKeys("a")[0]).Result()
	check.OK(c.t, err)
	return n
}

// chainStep is one delivery of a chain and what its consumer asks, with a memory or without.
func (c *sandbox) chainStep(due int64, remembers bool) (next int64) {
	c.t.Helper()
	d := Delivered{ID: "a", Due: due, Scheduled: due}
	if remembers {
		_, err := c.CheckDelivery(c.t.Context(), d, historyWindow)
		check.OK(c.t, err)
	}
	next, ok, err := c.AllowNext(c.t.Context(), d, due+1, historyWindow)
	check.OK(c.t, err)
	check.Equal(c.t, "allowed", ok, true)
	if remembers {
		check.OK(c.t, c.Done(c.t.Context(), "a", due, historyWindow))
	}
	return next
}

// TestTheHistoryOfAChainIsPruned: a chain that goes on for ever keeps what lies within
// the window, and no more.
func TestTheHistoryOfAChainIsPruned(t *testing.T) {
	t.Parallel()
	for name, remembers := range map[string]bool{"with a memory": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			const steps, most = 10_000, 4000
			due := c.now() - time.Hour.Milliseconds()
			for i := range steps {
				if due = c.chainStep(due, remembers); i%100 == 0 && c.fields() > most {
					t.Fatalf("%d fields after %d steps", c.fields(), i+1)
				}
			}
			if n := c.fields(); n > most {
				t.Errorf("%d fields after %d steps", n, steps)
			}
		})
	}
}

// TestTheHistoryOfWhatIsAlwaysParkedIsPruned: what is parked is never done.
func TestTheHistoryOfWhatIsAlwaysParkedIsPruned(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.now() - time.Hour.Milliseconds()
	for i := range int64(2000) {
		d := Delivered{ID: "a", Due: due + i, Scheduled: due + i}
		_, err := c.CheckDelivery(c.t.Context(), d, historyWindow)
		check.OK(c.t, err)
		_, _, err = c.AllowNext(c.t.Context(), d, 0, historyWindow)
		check.OK(c.t, err)
	}
	if n := c.fields(); n > 600 {
		t.Errorf("%d fields", n)
	}
}

// history writes a large hash as a consumer that never pruned left it, with what
// decides, and returns the latter.
func (c *sandbox) history(now int64, old int) (decides map[string]string) {
	c.t.Helper()
	hour := time.Hour.Milliseconds()
	ms := func(at int64) string { return strconv.FormatInt(at, 10) }
	values := map[string]string{}
	for i := range int64(old) / 4 {
		due := now - 50*hour - i
		values[ms(due)], values["r"+ms(due)] = ms(due+10), ms(now-100*hour)+" 1" // done
		values["r"+ms(due-hour*2000)] = ms(now-100*hour) + " 1"                  // never remembered
		values[ms(due-hour*4000)] = "0"                                          // parked
	}
	decides = map[string]string{
		"newest": ms(now - 100*hour), "cancelled": ms(now - 101*hour),
		// done late, within the window
		ms(now - 40*hour): ms(now - hour), "r" + ms(now-40*hour): ms(now-100*hour) + " 1",
		// done, handled, and waiting for its delivery
		ms(now - 2*hour): ms(now - hour), "r" + ms(now-2*hour): ms(now-100*hour) + " 1",
		ms(now - hour): "0", "r" + ms(now-hour): ms(now-100*hour) + " 1",
		"r" + ms(now+1000*hour): ms(now-100*hour) + " 1",
	}
	for field, value := range decides {
		values[field] = value
	}
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.historyKeys("a")[0], values).Err())
	return decides
}

// TestALargeHistoryIsPrunedInSmallSteps: one that grew before histories were pruned goes
// bit by bit, down to what decides.
func TestALargeHistoryIsPrunedInSmallSteps(t *testing.T) {
	t.Parallel()
	const old, atOnce, calls = 20_000, 1000, 2000
	for name, call := range map[string]func(c *sandbox, due int64) error{
		"follow": func(c *sandbox, due int64) error {
			_, _, err := c.AllowNext(c.t.Context(), Delivered{"a", due, due}, 0, 24*time.Hour)
			return err
		},
		"done": func(c *sandbox, due int64) error { return c.Done(c.t.Context(), "a", due, 24*time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			now := c.now()
			decides := c.history(now, old)
			if name == "follow" {
				decides["newest"] = fmt.Sprint(now) // of the delivery that it is asked for
			}
			left := c.fields()
			for n := 0; left > 64; n++ {
				if n == calls {
					t.Fatalf("%d fields are left after %d calls", left, n)
				}
				check.OK(c.t, call(c, now))
				before := left
				if left = c.fields(); before-left > atOnce {
					t.Fatalf("one call removed %d fields", before-left)
				}
			}
			for field, want := range decides {
				got, err := c.rdb.HGet(c.t.Context(), c.historyKeys("a")[0], field).Result()
				check.OK(c.t, err)
				check.Equal(t, field, got, want)
			}
			disposition, err := c.CheckDelivery(c.t.Context(), Delivered{"a", now - 40*time.Hour.Milliseconds(), 1},
				24*time.Hour)
			check.OK(c.t, err)
			check.Equal(t, "a late redelivery of what was done", disposition, Done)
			check.OK(c.t, c.noteCancelled("a", now))
			disposition, err = c.CheckDelivery(c.t.Context(), Delivered{"a", now + 1000*time.Hour.Milliseconds(), 1},
				24*time.Hour)
			check.OK(c.t, err)
			check.Equal(t, "the next step of the cancelled chain", disposition, Over)
		})
	}
}

// TestADeliveryIsNotPrunedByItsOwnStep: a message that waited for longer than the
// window still belongs to its chain while its handler has it.
func TestADeliveryIsNotPrunedByItsOwnStep(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	now := c.now()
	due, root := now-time.Hour.Milliseconds(), now-2*time.Hour.Milliseconds()
	for i := range 100 {
		check.OK(c.t, c.rdb.HSet(c.t.Context(), c.historyKeys("a")[0], fmt.Sprint("r", root-int64(i)), "1 1").Err())
	}
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.historyKeys("a")[0], fmt.Sprint("r", due), fmt.Sprint(root, " ",
		root)).Err())
	d := Delivered{"a", due, root}
	_, ok, err := c.AllowNext(c.t.Context(), d, now, time.Minute)
	check.OK(c.t, err)
	check.Equal(t, "allowed", ok, true)
	if n := c.fields(); n > 10 {
		t.Errorf("%d fields: nothing was pruned", n)
	}
	check.OK(c.t, c.noteCancelled("a", now))
	disposition, err := c.CheckDelivery(c.t.Context(), d, time.Minute)
	check.OK(c.t, err)
	check.Equal(t, "standing", disposition, Over)
}

// TestWithoutTheRightToScanSmallHistoriesArePruned: consumers had no HSCAN before, and
// go on with the rights they have.
func TestWithoutTheRightToScanSmallHistoriesArePruned(t *testing.T) {
	t.Parallel()
	for old, pruned := range map[int]bool{400: true, 4000: false} {
		t.Run(fmt.Sprint(old), func(t *testing.T) {
			t.Parallel()
			server := servertest.OwnRedis(t)
			c := sandboxOn(t, servertest.RedisOptions(server.Addr()), "p", 1)
			now := c.now()
			c.history(now, old)
			check.OK(c.t, c.rdb.Do(c.t.Context(), "ACL", "SETUSER", "before", "on", ">secret", "~*", "&*", "+@all",
				"-hscan").Err())
			options := *c.rdb.(*redis.Client).Options()
			options.Username, options.Password = "before", "secret"
			rdb := redis.NewClient(&options)
			defer rdb.Close()
			store, err := New(rdb, "p")
			check.OK(c.t, err)
			check.OK(c.t, store.Topic("orders").Done(c.t.Context(), "a", now, 24*time.Hour))
			check.Equal(t, "pruned", c.fields() < 20, pruned)
		})
	}
}

// TestManyCancelsAreNoted: each delivery history has its own time, also of IDs that come twice.
func TestManyCancelsAreNoted(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	ids, at := make([]string, 2*notesAtOnce+50), make([]int64, 2*notesAtOnce+50)
	for i := range ids {
		ids[i], at[i] = fmt.Sprint("o-", i), 1000+int64(i)
	}
	ids[1] = ids[0]
	for _, delivered := range []string{"o-7", "o-107"} {
		_, err := c.CheckDelivery(c.t.Context(), Delivered{delivered, 5, 5}, time.Hour)
		check.OK(c.t, err)
	}
	for range 2 {
		for i, noted := range c.NoteCancelled(c.t.Context(), ids, at) {
			if noted.Err != nil {
				t.Fatalf("%s: %v", ids[i], noted.Err)
			}
			check.Equal(t, ids[i]+" was delivered", noted.Delivered, i == 7 || i == 107)
		}
	}
	for i := 1; i < len(ids); i++ {
		key := c.historyKeys(ids[i])[0]
		check.Equal(t, "cancelled of "+ids[i], c.rdb.HGet(c.t.Context(), key, "cancelled").Val(), fmt.Sprint(at[i]))
		if left := c.rdb.PTTL(c.t.Context(), key).Val(); left <= 0 {
			t.Errorf("%s never expires", ids[i])
		}
	}
}
