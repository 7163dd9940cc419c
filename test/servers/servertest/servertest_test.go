package servertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
)

// TestRedisSandbox: a test's keys are removed when it ends, and another test's keys stay.
func TestRedisSandbox(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr, mine := Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var other string
	t.Run("other", func(t *testing.T) {
		_, other = Redis(t)
		for _, prefix := range []string{mine, other} {
			check.OK(t, client.Set(ctx, prefix+":key", "v", 0).Err())
		}
	})
	if n := client.Exists(ctx, other+":key").Val(); n != 0 {
		t.Errorf("%s:key still exists after its test", other)
	}
	if n := client.Exists(ctx, mine+":key").Val(); n != 1 {
		t.Errorf("%s:key is gone before its test is over", mine)
	}
}

// TestRabbitMQSandbox: a test can publish to its vhost, which is deleted when the test
// ends.
func TestRabbitMQSandbox(t *testing.T) {
	t.Parallel()
	var at string
	t.Run("inner", func(t *testing.T) {
		at = RabbitMQ(t)
		conn, err := amqp.Dial(at)
		check.OK(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		check.OK(t, err)
		_, err = ch.QueueDeclare("q", true, false, false, false, nil)
		check.OK(t, err)
	})
	if at == "" {
		t.Skip("RabbitMQ is not installed")
	}
	conn, err := amqp.Dial(at)
	if err == nil {
		_ = conn.Close()
	}
	if refusal := (*amqp.Error)(nil); !errors.As(err, &refusal) || refusal.Code != amqp.NotAllowed {
		t.Errorf("%s after its test: %v, want that there is no such vhost", at, err)
	}
}

// TestConsulSandbox: a test's keys are removed when it ends, and another test's keys stay.
func TestConsulSandbox(t *testing.T) {
	t.Parallel()
	addr, mine := Consul(t)
	var other string
	t.Run("other", func(t *testing.T) {
		_, other = Consul(t)
		for _, prefix := range []string{mine, other} {
			if got := kv(t, http.MethodPut, addr, prefix+"/topics/a", "v"); got != http.StatusOK {
				t.Fatalf("put %s: %d", prefix, got)
			}
		}
	})
	if got := kv(t, http.MethodGet, addr, other+"/topics/a", ""); got != http.StatusNotFound {
		t.Errorf("%s after its test: %d, want 404", other, got)
	}
	if got := kv(t, http.MethodGet, addr, mine+"/topics/a", ""); got != http.StatusOK {
		t.Errorf("%s before its test is over: %d, want 200", mine, got)
	}
}

// TestRequired: a missing server skips a test locally and fails it in CI.
func TestRequired(t *testing.T) {
	t.Setenv("CI", "")
	t.Setenv("DUEFLEET_TEST_REQUIRE", "")
	if required() {
		t.Error("servers are required without CI and without DUEFLEET_TEST_REQUIRE")
	}
	t.Setenv("CI", "true")
	if !required() {
		t.Error("servers are not required with CI=true")
	}
}

// TestSplitNode: splitNode reads a value of withservers, and rejects one without an AMQP
// port.
func TestSplitNode(t *testing.T) {
	t.Parallel()
	management, addr, err := splitNode("http://guest:guest@127.0.0.1:15672?amqp=5672")
	if err != nil || management != "http://guest:guest@127.0.0.1:15672" || addr != "127.0.0.1:5672" {
		t.Errorf("got %q, %q, %v", management, addr, err)
	}
	if _, _, err := splitNode("http://127.0.0.1:15672"); err == nil {
		t.Error("took a value without an AMQP port")
	}
}

func kv(t *testing.T, method, addr, key, value string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+"/v1/kv/"+key, strings.NewReader(value))
	check.OK(t, err)
	resp, err := http.DefaultClient.Do(req)
	check.OK(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	check.OK(t, err)
	return resp.StatusCode
}
