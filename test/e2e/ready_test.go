package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// awaitAnswer waits until /readyz has all the lines, and returns its first line.
func (w *fixture) awaitAnswer(s *fleet.Scanner, lines ...string) string {
	w.t.Helper()
	answer := ""
	defer func() {
		if w.t.Failed() {
			w.t.Logf("/readyz said at last:\n%s", answer)
		}
	}()
	check.Until(w.t, "/readyz to say "+strings.Join(lines, ", "), rarely(func() bool {
		answer = readyz(s)
		for _, line := range lines {
			if !holdsLine(answer, line, nil) {
				return false
			}
		}
		return true
	}))
	first, _, _ := strings.Cut(answer, "\n")
	return first
}

// TestReadyWhenTopicsAreServed: a scanner becomes ready once every topic of its documents
// is in Redis, where producers find it. A paused topic, or one with a missing exchange,
// accepts tasks and keeps them; it doesn't delay readiness.
func TestReadyWhenTopicsAreServed(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", nil),
		"paused": fleet.DeclaredTopic("paused", fleet.Topic{"paused": true}),
		"astray": {"shards": 1, "exchange": "nowhere"},
	})
	// A key that isn't a hash keeps the scanner from making the topic.
	obstacle := w.settings.RedisPrefix + ":placement:{orders}"
	check.OK(t, w.redis.Set(t.Context(), obstacle, "in the way", 0).Err())
	s := w.startUnready()
	first := w.awaitAnswer(s, "serving: ok", "redis: ok", "rabbitmq: ok", "config: ok: 3 topics")
	if first != "not ready" {
		t.Errorf("/readyz begins with %q while a topic isn't there, want not ready", first)
	}
	w.awaitAnswer(s, "topics: down (required): topic orders: not in Redis yet",
		"routes: down (optional): topic astray: check exchange \"nowhere\": 404")
	check.OK(t, w.redis.Del(t.Context(), obstacle).Err())
	if first := w.awaitAnswer(s, "topics: ok"); first != "ready" {
		t.Errorf("/readyz begins with %q while all topics are there, want ready", first)
	}
	for name := range w.settings.Topics {
		must(t, w.producer("schedule", "--topic", name, "--id", "a", "--in", "1h"))
	}
}

// TestReadyWithoutConsul: while Consul is down, a scanner is ready once it serves the
// documents kept in Redis.
func TestReadyWithoutConsul(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(1)
	check.Until(t, "the document to be kept", rarely(func() bool {
		return w.redis.Exists(t.Context(), w.settings.RedisPrefix+":document:{orders}").Val() == 1
	}))
	w.stop()
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	w.settings.Topics, w.settings.ConsulAddr, w.settings.ConsulPrefix = nil, addr, "nothing"
	w.write()
	// A key that isn't a set can't be read, so the scanner finds no topics.
	topics := w.settings.RedisPrefix + ":topics"
	known, err := w.redis.SMembers(t.Context(), topics).Result()
	check.OK(t, err)
	check.OK(t, w.redis.Set(t.Context(), topics, "in the way", time.Hour).Err())
	s := w.startUnready()
	first := w.awaitAnswer(s, "serving: ok", "redis: ok", "rabbitmq: ok",
		"consul: down (optional): the source of topics can't be read, the last good settings stay in force")
	if first != "not ready" {
		t.Errorf("/readyz begins with %q before any document was read, want not ready", first)
	}
	_, err = w.redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), topics)
		tx.SAdd(t.Context(), topics, known)
		return nil
	})
	check.OK(t, err)
	if first := w.awaitAnswer(s, "config: ok: 1 topics", "topics: ok"); first != "ready" {
		t.Errorf("/readyz begins with %q while the kept topic is served, want ready", first)
	}
}
