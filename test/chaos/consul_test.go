//go:build chaos

package chaos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestConsulGone: Consul is down while scanners start and work. It comes back empty and
// with a smaller index, loses a key, and holds a broken document. The last good settings
// stay in force, and updates work again without help.
func TestConsulGone(t *testing.T) {
	r := newHarness(t, options{consul: true})
	r.begin()
	check.OK(t, r.consul.Kill())
	check.OK(t, r.scanners[0].Kill())
	r.again(r.scanners[0])
	r.lasts(3 * time.Second)
	check.OK(t, os.RemoveAll(filepath.Join(r.dir, "consul", "data")))
	check.OK(t, r.consul.Restart(t.Context()))
	r.await("the topic to be shown as an orphan", func() bool { return len(r.status().Topic("orders").Notes) > 0 })
	r.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 7}))
	r.await("the settings of a Consul that came back", func() bool {
		s := r.status().Topic("orders")
		return s.Shards == 7 && s.Phase == "stable"
	})
	kv := r.kv()
	_, err := kv.Put(&consul.KVPair{Key: "duefleet/topics/orders", Value: []byte("shards: [")}, nil)
	check.OK(t, err)
	r.await("the broken document in status", func() bool {
		bad := 0
		for _, m := range r.status().Fleet {
			if m.Alive && len(m.Errors) > 0 {
				bad++
			}
		}
		return bad == len(r.scanners)
	})
	_, err = kv.Delete("duefleet/topics/orders", nil)
	check.OK(t, err)
	r.lasts(2 * time.Second)
	r.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 3}))
	r.await("the document that was set again", func() bool {
		s := r.status().Topic("orders")
		return s.Shards == 3 && s.Phase == "stable"
	})
	r.verdict("Consul: gone, empty, broken, deleted", allowance{repeats: inFlight})
}

// TestConsulTooManyRequests: a Consul that answers 429 is handled like any outage. The
// last good settings stay in force, status says why, and updates work again without help.
func TestConsulTooManyRequests(t *testing.T) {
	r := newHarness(t, options{consul: true})
	r.begin()
	limit := func(rate string) {
		t.Helper()
		hcl := `limits { request_limits { mode = "enforcing" read_rate = ` + rate + ` write_rate = ` + rate + ` } }`
		check.OK(t, r.consul.Reload(hcl))
	}
	limit("0.001")
	told := func() int {
		n := 0
		for _, m := range r.status().Fleet {
			if strings.Contains(m.Errors[""], "429") {
				n++
			}
		}
		return n
	}
	// Scanners see 429 only after the answer to their blocking query, which still runs.
	r.await("429 in status", func() bool { return told() == len(r.scanners) })
	r.lasts(3 * time.Second)
	limit("-1")
	r.await("Consul to answer again", func() bool { return told() == 0 })
	r.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 7}))
	r.await("settings of a Consul that answers again", func() bool {
		s := r.status().Topic("orders")
		return s.Shards == 7 && s.Phase == "stable"
	})
	r.verdict("Consul: 429", allowance{})
}

func (r *harness) kv() *consul.KV {
	r.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: r.consul.Addr()})
	check.OK(r.t, err)
	return client.KV()
}
