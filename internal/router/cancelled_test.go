package router

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestAVersionAfterACancelIsNewer although Redis's clock was set back by an hour after the
// cancel, and although the version is put into another shard. A version before the cancel
// is over.
func TestAVersionAfterACancelIsNewer(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]shard.Entry{"stored": entry("a", task.In(time.Hour)),
		"stored if absent": {ID: "a", When: task.In(time.Hour), Body: []byte{0}, IfAbsent: true}} {
		for how, between := range map[string]func(c *sandbox){
			"in its shard":                  func(*sandbox) {},
			"while the shard count changes": func(c *sandbox) { c.begin(2); c.Router("orders").Assume(c.p) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				c := newSandbox(t, 1)
				if next := (shard.Placement{Epoch: 1, Shards: 2, Previous: 1, Phase: shard.Migrating}); !next.Moving(e.ID) {
					t.Fatal("the task doesn't move")
				}
				c.put(task.In(time.Hour), e.ID)
				before := delivered(c.read(e.ID))
				ahead := c.now() + time.Hour.Milliseconds()
				check.OK(c.t, c.rdb.HSet(c.t.Context(), c.key("fence", 0), "cancelled", ahead).Err())
				check.OK(c.t, c.Router("orders").Cancel(c.t.Context(), e.ID))
				between(c)
				check.OK(c.t, c.Router("orders").Schedule(c.t.Context(), []shard.Entry{e})[0].Err)
				s, err := c.Shard(c.p.New(e.ID)).Read(c.t.Context(), c.p, e.ID)
				check.OK(c.t, err)
				if got := s.Scheduled.UnixMilli(); got < ahead {
					t.Errorf("scheduled %d ms before the cancel", ahead-got)
				}
				for d, want := range map[shard.Delivered]shard.Disposition{before: shard.Over, delivered(s): shard.Run} {
					got, err := c.CheckDelivery(c.t.Context(), d, time.Hour)
					check.OK(c.t, err)
					check.Equal(t, "disposition", got, want)
				}
			})
		}
	}
}

func delivered(s shard.Stored) shard.Delivered {
	return shard.Delivered{ID: s.ID, Due: s.Due.UnixMilli(), Scheduled: s.Scheduled.UnixMilli()}
}

// TestACancelWithoutATaskReachesItsDelivery: the task was delivered and isn't stored.
func TestACancelWithoutATaskReachesItsDelivery(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "b")
	d := delivered(c.read("b"))
	c.delete("b")
	check.Until(t, "the next millisecond", func() bool { return c.now() > d.Scheduled })
	if err := c.Router("orders").Cancel(c.t.Context(), "b"); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("cancelled %v", err)
	}
	got, err := c.CheckDelivery(c.t.Context(), d, time.Hour)
	check.OK(c.t, err)
	check.Equal(t, "disposition", got, shard.Over)
}

// TestACancelRemovesWhatItsConsumerStoredMeanwhile: the consumer of a delivered task may store it again
// until it can see the note of the cancel.
func TestACancelRemovesWhatItsConsumerStoredMeanwhile(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]int64{"retry": time.Hour.Milliseconds(), "parked": 0} {
		for how, window := range map[string]time.Duration{"remembering": time.Hour, "not remembering": 0} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				c := newSandbox(t, 1)
				a := c.delivered()
				consumer := New(c.routers.store).Topic("orders")
				check.Until(t, "the next millisecond", func() bool { return c.now() > a.Scheduled })
				store := sync.OnceFunc(func() {
					d := shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}
					_, err := c.CheckDelivery(c.t.Context(), d, window)
					check.OK(c.t, err)
					if a.Park = next == 0; !a.Park {
						next += c.now()
					}
					_, allowed, err := c.AllowNext(c.t.Context(), d, next, time.Hour)
					check.OK(c.t, err)
					a.Next = next
					stored, err := consumer.Requeue(c.t.Context(), a)
					check.OK(c.t, err)
					check.Equal(t, "stored", stored && allowed, true)
				})
				note, err := shard.Script("note")
				check.OK(c.t, err)
				faults.Before(c.rdb, func(r faults.Request) {
					for _, cmd := range r.Commands {
						if faults.Runs(cmd, note) {
							store()
						}
					}
				})
				_ = c.Router("orders").Cancel(c.t.Context(), a.ID)
				store() // nothing, unless the cancel sent no note
				_, err = c.Router("orders").Get(c.t.Context(), a.ID)
				check.Equal(t, "gone", errors.Is(err, task.ErrNotFound), true)
			})
		}
	}
}

// TestAnUnknownTopicMayBeATypo: the error names the topic that was likely meant, if the user
// may list them, and stays a task.ErrUnknownTopic.
func TestAnUnknownTopicMayBeATypo(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for name, want := range map[string]string{"order": "; did you mean topic orders?", "bills": ""} {
		for role, may := range map[string]bool{"operator": true, "producer": false} {
			store, err := shard.New(g.as(role), "duefleet")
			check.OK(g.t, err)
			if role == "producer" { // of all topics, which it may not list
				check.OK(g.t, g.rdb.Do(g.t.Context(), "ACL", "SETUSER", "duefleet-producer", "%R~duefleet:placement:*",
					"-smembers").Err())
			}
			_, read := New(store).Topic(name).Get(g.t.Context(), "a")
			_, listed := store.Topic(name).Listing(shard.Wanted{}).Next(g.t.Context())
			for _, err := range []error{read, listed} {
				want := want
				if !may {
					want = ""
				}
				said := strings.Contains(err.Error(), "did you mean") == (want != "")
				if !errors.Is(err, task.ErrUnknownTopic) || !strings.HasSuffix(err.Error(), want) || !said {
					t.Errorf("%s of %s: got %v, want %q", name, role, err, want)
				}
			}
		}
	}
}
