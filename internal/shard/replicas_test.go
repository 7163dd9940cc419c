package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// twin is a topic on a Redis with one replica, and calls wait for that replica.
type twin struct {
	*sandbox
	replica *servers.Redis
	copied  *redis.Client
}

func newTwin(t *testing.T, shards int) *twin {
	t.Helper()
	master := servertest.OwnRedis(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	w := &twin{replica: servertest.OwnRedis(t, "--replicaof", host+" "+port)}
	w.copied = redis.NewClient(&redis.Options{Addr: w.replica.Addr()})
	t.Cleanup(func() { _ = w.copied.Close() })
	check.Until(t, "the replica follows", func() bool {
		return strings.Contains(w.copied.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	w.sandbox = sandboxOn(t, &redis.UniversalOptions{Addrs: []string{master.Addr()}}, "own", shards)
	check.OK(w.t, w.scripts.AwaitReplicas(1))
	return w
}

// acknowledged repeats a put until it is acknowledged, because a slow replica may need
// longer than one call waits.
func (c *sandbox) acknowledged(puts ...Put) (results []PutResult) {
	c.t.Helper()
	check.Until(c.t, "enough replicas have a put", func() bool {
		results = c.Put(c.t.Context(), c.p, c.notAfter(), puts)
		for _, r := range results {
			if errors.Is(r.Err, task.ErrReplicas) {
				return false
			}
			check.OK(c.t, r.Err)
		}
		return true
	})
	return results
}

// short ends the test unless err says that the replica doesn't have the change.
func (w *twin) short(what string, err error) {
	w.t.Helper()
	var e *luascript.ReplicasError
	if !errors.Is(err, task.ErrReplicas) || !errors.As(err, &e) || e.Have != 0 || e.Want != 1 {
		w.t.Errorf("%s while the replica stands still: %v, want %v", what, err, task.ErrReplicas)
	}
}

func TestWhatIsAcknowledgedIsAtTheReplica(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 4)
	for i := range 50 {
		puts := make([]Put, 4)
		for s := range puts {
			puts[s] = Put{Shard: s, Op: NewOp(), Entries: []Entry{entry(fmt.Sprint("t", i), task.In(time.Hour))}}
		}
		for s := range w.acknowledged(puts...) {
			there, err := w.copied.HExists(w.t.Context(), w.Shard(s).tasks(), fmt.Sprint("t", i)).Result()
			check.OK(w.t, err)
			check.Equal(t, "at the replica", there, true)
		}
	}
}

func TestACallThatDoesNotReachTheReplicaSaysSo(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 2)
	w.acknowledged(Put{Op: NewOp(), Entries: []Entry{entry("there", task.In(time.Hour))}})
	check.OK(w.t, w.replica.Pause())
	put := Put{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}
	began := time.Now()
	r := w.tryPut(w.p, put)
	w.short("put", r.Err)
	if took := time.Since(began); took < luascript.ReplicaPatience {
		t.Errorf("it took %s, want %s", took, luascript.ReplicaPatience)
	}
	check.Equal(t, "due at the master", w.read("a").Due.UnixMilli(), r.Due[0])
	w.short("the same put again, which finds it there", w.tryPut(w.p, put).Err)
	move := Move{Op: NewOp(), ID: "there", When: task.In(time.Minute)}
	due, err := w.Shard(0).Reschedule(w.t.Context(), w.p, w.notAfter(), move)
	w.short("reschedule", err)
	check.Equal(t, "due at the master", w.read("there").Due.UnixMilli(), due)
	gone, err := w.Delete(w.t.Context(), 0, w.p, w.notAfter(), false, "there", "absent")
	w.short("cancel", err)
	check.Equal(t, "what a cancel found", fmt.Sprint(gone), "[true false]")
	_, err = w.Shard(0).Fence(w.t.Context(), w.p)
	w.short("fence", err)
	w.short("import", w.Import(w.t.Context(), w.p, w.now()+60_000, Share{1,
		[]ExportedTask{{"exported", "1", head + "\x00"}}})[0].Err)
	_, err = w.Shard(0).Pass(w.t.Context(), w.p)
	w.short("scan_pass", err)
	check.OK(w.t, w.replica.Resume())
	w.acknowledged(put)
	there, err := w.copied.HExists(w.t.Context(), w.Shard(0).tasks(), "a").Result()
	check.OK(w.t, err)
	check.Equal(t, "at the replica", there, true)
}

func TestReplicasOnACluster(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 8)
	if _, ok := c.rdb.(*redis.ClusterClient); !ok {
		t.Skip("the shared Redis is no cluster")
	}
	check.OK(c.t, c.scripts.AwaitReplicas(1))
	puts := make([]Put, 8)
	for s := range puts {
		puts[s] = Put{Shard: s, Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}
	}
	c.acknowledged(puts...)
	check.OK(c.t, c.scripts.AwaitReplicas(2)) // each master has one
	w := &twin{sandbox: c}
	if err := w.tryPut(w.p, puts[0]).Err; !errors.Is(err, task.ErrReplicas) {
		t.Errorf("put for two replicas where there is one: %v", err)
	}
}

// TestARetryThatTooFewReplicasHaveIsStoredByTheNextTry: the next try finds what the first
// stored, and recognizes it as its own.
func TestARetryThatTooFewReplicasHaveIsStoredByTheNextTry(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 1)
	check.OK(w.t, w.scripts.AwaitReplicas(0))
	w.put(task.Now(), "a")
	claimed := w.claimIDs("a")
	w.settle(leases(claimed)...)
	b := claimed.Tasks[0]
	a := Requeue{ID: "a", Op: NewOp(), Due: b.Due.UnixMilli(), Attempt: 1, Attempts: 1, Next: w.now() + 3600_000,
		Scheduled: b.Scheduled.UnixMilli(), Reason: "why", Body: body("again")}
	check.OK(w.t, w.scripts.AwaitReplicas(1))
	check.OK(w.t, w.replica.Pause())
	again := func() (*Kept, error) { return w.Shard(0).Requeue(w.t.Context(), w.p, w.notAfter(), a, Requeuing{}) }
	_, err := again()
	w.short("a retry", err)
	check.OK(w.t, w.replica.Resume())
	check.Until(t, "the replica has the retry", func() bool {
		stays, err := again()
		if errors.Is(err, task.ErrReplicas) {
			return false
		}
		check.OK(w.t, err)
		check.Equal(t, "stored", stays == nil, true)
		return true
	})
}

// TestANoteForConsumersWaitsForItsOwnReplicas: on a Redis Cluster an ID's delivery
// history can be on another server than its shard. Here only that server has too few
// replicas.
func TestANoteForConsumersWaitsForItsOwnReplicas(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	c := sandboxOn(t, servertest.RedisOptions(strings.Join(cluster.Addrs(), ",")), "own", 1)
	check.OK(c.t, c.scripts.AwaitReplicas(1)) // its masters have none
	if err := c.noteCancelled("a", 1); !errors.Is(err, task.ErrReplicas) {
		t.Errorf("a cancel without a replica: %v, want %v", err, task.ErrReplicas)
	}
	ttl, err := c.rdb.PTTL(c.t.Context(), c.historyKeys("a")[0]).Result()
	check.OK(c.t, err)
	if ttl <= 0 {
		t.Error("the history stays for ever")
	}
	if _, err := c.Delete(c.t.Context(), 0, c.p, c.notAfter(), false, "b"); !errors.Is(err, task.ErrReplicas) {
		t.Errorf("withdraw: %v", err)
	}
	n, err := c.rdb.Exists(c.t.Context(), c.historyKeys("b")[0]).Result()
	check.OK(c.t, err)
	check.Equal(t, "histories made by a look", n, 0)
}

func TestTooManyReplicasAreRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, luascript.MaxReplicas + 1} {
		if err := (&Store{}).AwaitReplicas(n); err == nil {
			t.Errorf("%d replicas are taken", n)
		}
	}
}
