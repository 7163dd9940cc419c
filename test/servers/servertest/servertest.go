// Package servertest gives each test its own corner of a Redis, a RabbitMQ and
// a Consul that all tests share, so that they run beside each other.
//
// The environment names the servers, as withservers sets it:
//
//	DUEFLEET_TEST_REDIS=127.0.0.1:6379 (several with commas between: a Redis Cluster)
//	DUEFLEET_TEST_RABBITMQ=http://guest:guest@127.0.0.1:15672?amqp=5672
//	DUEFLEET_TEST_CONSUL=127.0.0.1:8500
//
// What it doesn't name is started at the first call in a test binary and ends
// with that binary. A test that makes servers fail starts its own with package
// servers.
package servertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/wait"
)

// cleanupLimit bounds what a test's cleanup may take.
const cleanupLimit = time.Minute

// Redis returns a server's "127.0.0.1:port", or those of a Redis Cluster with
// commas between, and a key prefix of this test's own. Keys that begin with it are
// removed when the test is over.
func Redis(t testing.TB) (addr, prefix string) {
	t.Helper()
	addr = shared.redis.get(t)
	prefix = unique(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := removeKeys(ctx, addr, prefix); err != nil {
			t.Errorf("remove the keys of %s: %v", prefix, err)
		}
	})
	return addr, prefix
}

// RabbitMQ returns the AMQP URL of a vhost of this test's own, which is
// deleted when the test is over. The user is guest, with the password guest.
func RabbitMQ(t testing.TB) string {
	t.Helper()
	node := shared.rabbitmq.get(t)
	management, addr, err := splitNode(node)
	if err != nil {
		t.Fatal(err)
	}
	vhost := unique(t)
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	if err := servers.AddVhost(ctx, management, vhost); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := servers.DeleteVhost(ctx, management, vhost); err != nil {
			t.Error(err)
		}
	})
	return "amqp://guest:guest@" + addr + "/" + vhost
}

// Channel opens a channel for the test's own doings, on a connection of its own that
// ends with the test. However busy the machine is, neither is given up.
func Channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: wait.Hang, Dial: amqp.DefaultDial(wait.Hang)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// Consul returns the "127.0.0.1:port" of an agent's HTTP API and a key prefix
// of this test's own, without a slash at its end. Keys that begin with it are
// removed when the test is over.
func Consul(t testing.TB) (addr, prefix string) {
	t.Helper()
	addr = shared.consul.get(t)
	prefix = unique(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := removeTree(ctx, addr, prefix); err != nil {
			t.Errorf("remove the keys of %s: %v", prefix, err)
		}
	})
	return addr, prefix
}

// Need is for a test that starts servers of its own with package servers. Unless
// all of them are installed the test is skipped, or fails where servers are
// required: with CI=true or DUEFLEET_TEST_REQUIRE=1.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := servers.Find(name); err != nil {
			if required() {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// OwnRedis starts a server for one test, which may fill, flush, pause or kill it; it
// ends with the test. args are those of redis-server.
func OwnRedis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	Need(t, "redis-server")
	server, err := servers.StartRedis(t.Context(), servers.RedisConfig{Dir: t.TempDir(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Leaks is wait.Leaks for a package whose tests use what this one starts, which outlives
// them.
func Leaks(m *testing.M) int {
	return wait.Leaks(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap"))
}

// RedisOptions are those of a client to what Redis returned.
func RedisOptions(addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: strings.Split(addr, ",")}
}

// unique is a name for this test's corner: letters, digits and dashes, and at
// its end a number that makes it the beginning of no other name.
func unique(t testing.TB) string {
	const most = 40
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return fmt.Sprintf("%.*s-%016x", most, name, rand.Uint64())
}

// removeKeys walks over all keys of the server: those of a test that runs
// beside this one are few.
func removeKeys(ctx context.Context, addr, prefix string) error {
	client := redis.NewUniversalClient(RedisOptions(addr))
	defer client.Close()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return removeKeysOf(ctx, node, prefix)
		})
	}
	return removeKeysOf(ctx, client, prefix)
}

func removeKeysOf(ctx context.Context, client redis.UniversalClient, prefix string) error {
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func removeTree(ctx context.Context, addr, prefix string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://"+addr+"/v1/kv/"+prefix+"?recurse", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("delete %s: %s", prefix, resp.Status)
	}
	return nil
}

// splitNode takes the root of the HTTP API and the AMQP address out of a value
// of DUEFLEET_TEST_RABBITMQ.
func splitNode(node string) (management, amqp string, err error) {
	u, err := url.Parse(node)
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", rabbitmqVar, err)
	}
	port := u.Query().Get("amqp")
	if port == "" {
		return "", "", fmt.Errorf("read %s: %q has no ?amqp=port at its end", rabbitmqVar, node)
	}
	u.RawQuery = ""
	return strings.TrimSuffix(u.String(), "/"), u.Hostname() + ":" + port, nil
}

// required is true where a missing server fails a test instead of skipping it.
func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("DUEFLEET_TEST_REQUIRE") == "1"
}
