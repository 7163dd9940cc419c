// Package servertest gives each test a sandbox in a Redis, a RabbitMQ and a Consul that
// all tests share. So tests can run in parallel.
//
// The environment names the servers, as withservers sets it:
//
//	DUEFLEET_TEST_REDIS=127.0.0.1:6379 (several separated by commas: a Redis Cluster)
//	DUEFLEET_TEST_RABBITMQ=http://guest:guest@127.0.0.1:15672?amqp=5672
//	DUEFLEET_TEST_CONSUL=127.0.0.1:8500
//
// A server without a variable starts at the first call in a test binary and ends with
// that binary. A test that makes servers fail starts its own with package servers.
package servertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
)

// cleanupLimit bounds a test's cleanup.
const cleanupLimit = time.Minute

// Redis returns a server's "127.0.0.1:port" and a key prefix for this test alone. For a
// Redis Cluster, addr holds several addresses separated by commas. Keys with that prefix
// are removed when the test ends.
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

// RabbitMQ returns the AMQP URL of a vhost for this test alone, which is deleted when the
// test ends. The user is guest, with the password guest.
func RabbitMQ(t testing.TB) string {
	t.Helper()
	node := shared.rabbitmq.get(t)
	management, addr, err := splitNode(node)
	check.OK(t, err)
	vhost := unique(t)
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	check.OK(t, servers.AddVhost(ctx, management, vhost))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := servers.DeleteVhost(ctx, management, vhost); err != nil {
			t.Error(err)
		}
	})
	return "amqp://guest:guest@" + addr + "/" + vhost
}

// Policy sets a policy for the queues of RabbitMQ's URL whose names match pattern. The caller calls
// remove.
func Policy(t testing.TB, rawURL, pattern, definition string) (remove func()) {
	t.Helper()
	management, _, err := splitNode(shared.rabbitmq.get(t))
	check.OK(t, err)
	vhost := rawURL[strings.LastIndex(rawURL, "/")+1:]
	const name = "test"
	check.OK(t, servers.SetPolicy(t.Context(), management, vhost, name, pattern, definition))
	return func() {
		t.Helper()
		check.OK(t, servers.DeletePolicy(t.Context(), management, vhost, name))
	}
}

// Channel opens a channel on a connection of its own, which closes when the test ends.
// The timeouts are as long as check.Hang, for busy machines.
func Channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: check.Hang, Dial: amqp.DefaultDial(check.Hang)})
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	check.OK(t, err)
	return ch
}

// Consul returns the "127.0.0.1:port" of an agent's HTTP API and a key prefix for this
// test alone, without a slash at its end. Keys with that prefix are removed when the test
// ends.
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

// Need checks that the named servers are installed, for a test that starts its own with
// package servers. If one is missing, the test is skipped. It fails instead where servers
// are required: with CI=true or DUEFLEET_TEST_REQUIRE=1.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := servers.Find(name); err != nil {
			missing(t, err)
		}
	}
}

func missing(t testing.TB, what any) {
	t.Helper()
	if required() {
		t.Fatal(what)
	}
	t.Skip(what)
}

// OwnRedis starts a server for one test, which may fill, flush, pause or kill it. The
// server ends with the test. args are arguments of redis-server.
func OwnRedis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	Need(t, "redis-server")
	server, err := servers.StartRedis(t.Context(), servers.RedisConfig{Dir: t.TempDir(), Args: args})
	check.OK(t, err)
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// OwnRedisCluster starts a Redis Cluster of three masters for one test. It ends with the
// test. The others serve their slots while one hangs for up to a minute.
func OwnRedisCluster(t testing.TB) *servers.RedisCluster {
	t.Helper()
	Need(t, "redis-server")
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{Dir: t.TempDir(), Masters: 3,
		Timeout: time.Minute})
	check.OK(t, err)
	t.Cleanup(func() { _ = cluster.Kill() })
	return cluster
}

// RedisWithUsers starts a server for one test, with the users of the ACL files in a folder.
// The password of each is the name of its file.
func RedisWithUsers(t testing.TB, dir string) *servers.Redis {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.acl"))
	check.OK(t, err)
	var users []byte
	for _, file := range files {
		line, err := os.ReadFile(file)
		check.OK(t, err)
		role := strings.TrimSuffix(filepath.Base(file), ".acl")
		users = append(users, bytes.ReplaceAll(line, []byte("PASSWORD"), []byte(role))...)
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	check.OK(t, os.WriteFile(file, users, 0o600))
	return OwnRedis(t, "--aclfile", file)
}

// Leaks is check.Leaks for a package whose tests use servers of this package, which
// outlive the tests.
func Leaks(m *testing.M) int {
	return check.Leaks(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap"))
}

// RedisOptions returns client options for an address that Redis returned.
func RedisOptions(addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: strings.Split(addr, ",")}
}

// unique returns a name for this test's sandbox: letters, digits and dashes. The random
// number at its end makes sure that it isn't a prefix of another name.
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

// removeKeys removes the keys with a prefix. It scans all keys of the server, which is
// cheap, because other tests have few keys.
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

// splitNode splits a value of DUEFLEET_TEST_RABBITMQ into the root of the HTTP API and
// the AMQP address.
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

// required returns true if a missing server must fail a test instead of skipping it.
func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("DUEFLEET_TEST_REQUIRE") == "1"
}

// RedisNow returns the time of a Redis, in whole ms, as records hold it.
func RedisNow(t testing.TB, client redis.UniversalClient) time.Time {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	check.OK(t, err)
	return now.Truncate(time.Millisecond)
}
