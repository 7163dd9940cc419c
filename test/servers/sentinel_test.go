package servers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestRedisSentinels: sentinels replace a dead master. If the old master returns, it
// becomes a replica of the new one.
func TestRedisSentinels(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	ctx := t.Context()
	s, err := servers.StartRedisSentinels(ctx, servers.SentinelConfig{Dir: t.TempDir(), Replicas: 2, Sentinels: 3,
		DownAfter: 5 * time.Second})
	check.OK(t, err)
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.Addrs(), MasterName: servers.MasterName})
	t.Cleanup(func() { _ = client.Close() })
	first, err := s.Master(ctx)
	check.OK(t, err)
	if got := role(t, first); got != "master" {
		t.Fatalf("the sentinels name a %s", got)
	}
	check.OK(t, client.Set(ctx, "a", "kept", 0).Err())
	check.OK(t, client.Do(ctx, "WAIT", 2, 0).Err())
	check.OK(t, first.Kill())
	check.Until(t, "another master", func() bool {
		now, err := s.Master(ctx)
		return err == nil && now != first
	})
	check.Until(t, "the client to find it", func() bool { return client.Get(ctx, "a").Val() == "kept" })
	check.OK(t, first.Restart(ctx))
	check.Until(t, "the former master to follow", func() bool { return role(t, first) == "slave" })
}

// role returns the role that a server reports, or "" if it doesn't answer.
func role(t *testing.T, r *servers.Redis) string {
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer client.Close()
	said, err := client.Do(t.Context(), "ROLE").Slice()
	if err != nil || len(said) == 0 {
		return ""
	}
	return fmt.Sprint(said[0])
}
