package machine_test

import (
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMain sets the defaults for rapid that continuous integration can afford. Flags and
// rapid's environment variables win.
func TestMain(m *testing.M) {
	for name, preset := range map[string]struct{ variable, value string }{
		"rapid.checks": {"RAPID_CHECKS", "200"},
		"rapid.steps":  {"RAPID_STEPS", "60"},
	} {
		if os.Getenv(preset.variable) == "" {
			_ = flag.Set(name, preset.value) // rapid has defined the flag
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

// interceptedClient is a client whose scripts are replaced on their way.
type interceptedClient struct {
	*redis.Client
	interceptor *interceptor
}

// client starts a Redis for this test alone, because the test empties it and flushes its
// scripts. Commands of other tests would also change a replay.
func client(t *testing.T, d defect) interceptedClient {
	t.Helper()
	server := servertest.OwnRedis(t, "--appendonly", "no")
	// The client must not send a command again because a reply is slow: the test draws
	// how often each command is sent. With ContextTimeoutEnabled, a producer's calls stay
	// in its own goroutine, which an actor ends.
	options := &redis.Options{Addr: server.Addr(), DialTimeout: check.Hang, ReadTimeout: check.Hang,
		ContextTimeoutEnabled: true}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := newInterceptor(d)
	check.OK(t, err)
	faults.Around(rdb, l.around)
	return interceptedClient{rdb, l}
}
