// Package heartbeat has scanners that do nothing but report what a test says.
package heartbeat

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
)

// Start registers a scanner until the test ends. It reports m, and later what says holds then,
// under the name of m.
func Start(t testing.TB, store *shard.Store, m balance.Member) (says *atomic.Pointer[balance.Member]) {
	t.Helper()
	name := m.Instance
	m.Applied = math.MaxInt64
	says = &atomic.Pointer[balance.Member]{}
	says.Store(&m)
	beat := balance.NewHeartbeat(balance.HeartbeatConfig{
		Store: store, Instance: name,
		Describe: func() balance.Member { m := *says.Load(); m.Instance = name; return m },
		Advice:   func(string) string { return "" }, Log: slog.New(slog.DiscardHandler),
	})
	check.Background(t, "the heartbeat", func(ctx context.Context) error { beat.Run(ctx); return nil })
	Heard(t, store, name, func(balance.Member) bool { return true })
	return says
}

// Heard waits until the fleet has a report of a scanner that fulfils that.
func Heard(t testing.TB, store *shard.Store, name string, that func(balance.Member) bool) {
	t.Helper()
	check.Until(t, name+" to be heard", func() bool {
		members, err := balance.Members(t.Context(), store)
		check.OK(t, err)
		for _, m := range members {
			if m.Instance == name && m.Alive && m.Applied > 0 && that(m) {
				return true
			}
		}
		return false
	})
}

// WriteApplied writes the note of a scanner about the documents that it applied.
func WriteApplied(t testing.TB, client *api.Client, prefix, scanner string, documents map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"documents": Digests(documents)})
	check.OK(t, err)
	_, err = client.KV().Put(&api.KVPair{Key: prefix + "/status/" + scanner + "/config", Value: text}, nil)
	check.OK(t, err)
}

// Digests returns the digest of each document.
func Digests(documents map[string]string) map[string]string {
	all := map[string]string{}
	for topic, text := range documents {
		all[topic] = config.Digest([]byte(text))
	}
	return all
}
