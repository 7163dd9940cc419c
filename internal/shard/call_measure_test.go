//go:build measure

package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMeasureACallOutlastsARestartOfRedis(t *testing.T) {
	server := servertest.OwnRedis(t, "--appendfsync", "always")
	refused := make(chan struct{})
	var once sync.Once
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			once.Do(func() { close(refused) })
		}
		return conn, err
	}
	c := sandboxOn(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Dialer: dial, DialerRetries: 1}, "own", 1)
	c.put(task.In(time.Hour), "before")
	notAfter := c.soonAfter()
	check.OK(c.t, server.Kill())
	put := make(chan PutResult, 1)
	go func() {
		put <- c.Put(c.t.Context(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}})[0]
	}()
	<-refused
	check.OK(c.t, server.Restart(c.t.Context()))
	back := time.Now()
	r := <-put
	check.OK(c.t, r.Err)
	if late := time.Since(back); late > luascript.CallLife-time.Second {
		t.Errorf("repeated %s after Redis was back; nothing had been sent, so it need not wait", late)
	}
	check.Equal(t, "due", c.read("a").Due.UnixMilli(), r.Due[0])
	c.read("before")
}

func TestMeasureACallOutlastsARedisThatLoadsItsFile(t *testing.T) {
	server := servertest.OwnRedis(t, "--appendfsync", "no", "--key-load-delay", "50")
	// Nothing is asked in front of the call on a new connection: Redis answers
	// but now and then while it loads.
	options := servertest.RedisOptions(server.Addr())
	options.Protocol, options.DisableIdentity = 2, true
	c := sandboxOn(t, options, "own", 1)
	c.put(task.In(time.Hour), "before")
	_, err := c.rdb.Pipelined(c.t.Context(), func(p redis.Pipeliner) error {
		for i := range 6000 {
			p.Set(c.t.Context(), fmt.Sprint("own:filler:", i), "", 0)
		}
		return nil
	})
	check.OK(c.t, err)
	notAfter := c.soonAfter()
	check.OK(c.t, server.Stop(c.t.Context()))
	var loading atomic.Int64 // replies to scripts
	faults.After(c.rdb, func(r faults.Request) {
		if cmd := r.Commands[0]; cmd.Name() == "evalsha" && redis.HasErrorPrefix(cmd.Err(), "LOADING") {
			loading.Add(1)
		}
	})
	options.MaxRetries = -1
	side := redis.NewUniversalClient(options)
	defer side.Close()
	restarted := make(chan error, 1)
	go func() { restarted <- server.Restart(c.t.Context()) }()
	check.Until(t, "Redis loads its file", func() bool {
		return redis.HasErrorPrefix(side.Ping(c.t.Context()).Err(), "LOADING")
	})
	r := c.Put(c.t.Context(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}})[0]
	check.OK(c.t, r.Err)
	due := r.Due[0]
	check.OK(c.t, <-restarted)
	check.Equal(t, "due", c.read("a").Due.UnixMilli(), due)
	c.read("before")
	if loading.Load() == 0 {
		t.Error("the call met a Redis that had loaded its file")
	}
}

func TestMeasureACallOfAClosedClientFailsAtOnce(t *testing.T) {
	c := newSandbox(t, 1)
	notAfter := c.soonAfter()
	check.OK(c.t, c.rdb.Close())
	began := time.Now()
	r := c.Put(c.t.Context(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", task.Now())}}})[0]
	if !errors.Is(r.Err, redis.ErrClosed) {
		t.Fatalf("put: got %v", r.Err)
	}
	if took := time.Since(began); took >= luascript.CallLife {
		t.Errorf("it took %s", took)
	}
}

func TestMeasureACallThatDoesNotReachTheReplicaSaysSo(t *testing.T) {
	w := newTwin(t, 2)
	w.acknowledged(Put{Op: NewOp(), Entries: []Entry{entry("there", task.In(time.Hour))}})
	check.OK(w.t, w.replica.Pause())
	began := time.Now()
	w.short("put", w.tryPut(w.p, Put{Entries: []Entry{entry("a", task.In(time.Hour))}}).Err)
	if took := time.Since(began); took < luascript.ReplicaPatience || took > 3*luascript.ReplicaPatience {
		t.Errorf("it took %s, want about %s", took, luascript.ReplicaPatience)
	}
}
