package servers_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func startRedis(t *testing.T, cfg servers.RedisConfig) *servers.Redis {
	t.Helper()
	servertest.Need(t, "redis-server")
	r, err := servers.StartRedis(t.Context(), cfg)
	check.OK(t, err)
	t.Cleanup(func() { _ = r.Kill() })
	return r
}

// startRabbitMQ may be called outside the test's goroutine. On failure it reports the
// error and returns nil.
func startRabbitMQ(t *testing.T, cfg servers.RabbitMQConfig) *servers.RabbitMQ {
	node, err := servers.StartRabbitMQ(t.Context(), cfg)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		_ = node.Kill()
		if b, err := os.ReadFile(node.Log()); err == nil && t.Failed() {
			t.Logf("the end of the log of %s:\n%s", node.URL("/"), b[max(0, len(b)-4000):])
		}
	})
	return node
}

func dial(t *testing.T, r *servers.Redis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func put(t *testing.T, url, value string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(value))
	check.OK(t, err)
	do(t, req)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check.OK(t, err)
	return do(t, req)
}

func do(t *testing.T, req *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	check.OK(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %s", req.Method, req.URL, resp.Status, err, body)
	}
	return string(body)
}

func listening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
