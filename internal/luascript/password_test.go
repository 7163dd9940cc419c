package luascript

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestARefusedPasswordIsTriedOnceASecond: however many calls there are, and until Redis
// takes the password: then the next second's call goes through.
func TestARefusedPasswordIsTriedOnceASecond(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	server, err := servers.StartRedis(t.Context(), servers.RedisConfig{Dir: filepath.Join(t.TempDir(), "redis"),
		Args: []string{"--requirepass", "right"}})
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	const pool, callers, calls = 2, 8, 5
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "right"})
	client := redis.NewUniversalClient(Dialing(&redis.UniversalOptions{Addrs: []string{server.Addr()}, Password: "wrong",
		PoolSize: pool}))
	t.Cleanup(func() { _, _ = admin.Close(), client.Close() })

	began := time.Now()
	var calling errgroup.Group
	for range callers {
		calling.Go(func() error {
			for range calls {
				if err := client.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "WRONGPASS") &&
					!strings.Contains(err.Error(), "WRONGPASS") {
					t.Errorf("a call with a wrong password: %v", err)
				}
			}
			return nil
		})
	}
	_ = calling.Wait()
	entries, err := admin.ACLLog(t.Context(), 100_000).Result()
	check.OK(t, err)
	refused := 0
	for _, e := range entries {
		refused += int(e.Count)
	}
	// At first each connection of the pool may be under way.
	most := pool + int(time.Since(began)/time.Second) + 1
	t.Logf("%d calls within %s: %d passwords refused", callers*calls, time.Since(began), refused)
	if refused == 0 || refused > most {
		t.Errorf("%d passwords were refused within %s, want 1 to %d", refused, time.Since(began), most)
	}
	check.OK(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", ">wrong").Err())
	check.Until(t, "the password to be tried again", func() bool { return client.Ping(t.Context()).Err() == nil })
}
