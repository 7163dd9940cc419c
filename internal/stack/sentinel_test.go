package stack_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/stack"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
)

// TestRedisSentinels: they replace a master that died, and one that comes back
// follows the new one.
func TestRedisSentinels(t *testing.T) {
	t.Parallel()
	stacktest.Need(t, "redis-server")
	ctx := t.Context()
	s, err := stack.StartRedisSentinels(ctx, stack.SentinelConfig{Dir: t.TempDir(), Replicas: 2, Sentinels: 3, DownAfter: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.Addrs(), MasterName: stack.MasterName})
	t.Cleanup(func() { _ = client.Close() })
	first, err := s.Master(ctx)
	if err != nil || first != s.Servers[0] {
		t.Fatalf("the master is %v, %v; want the first server", first, err)
	}
	if err := client.Set(ctx, "a", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(ctx, "WAIT", 2, 5000).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "another master", func() bool {
		now, err := s.Master(ctx)
		return err == nil && now != first
	})
	until(t, "the client to find it", func() bool { return client.Get(ctx, "a").Val() == "kept" })
	if err := first.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	back := redis.NewClient(&redis.Options{Addr: first.Addr()})
	t.Cleanup(func() { _ = back.Close() })
	until(t, "the former master to follow", func() bool {
		role, err := back.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "slave"
	})
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatal("waited 30 s in vain for", what)
		}
		<-time.After(50 * time.Millisecond)
	}
}
