//go:build chaos

package chaos_test

import (
	"context"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/duefleet/duefleet/test/check"
	shared "github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fleet"
)

// network is a faulty network between the scanners and a server.
type network struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

func newNetwork(t *testing.T, upstream string) *network {
	t.Helper()
	// The system must not choose the port: an outgoing connection could get it while the
	// proxy is down.
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	return &network{t: t, proxy: shared.Proxy(t, addr, upstream)}
}

func (n *network) addr() string { return n.proxy.Listen }

// spoil is Toxic of package faults, with two kinds of our own: closing and narrow.
func (n *network) spoil(name, kind, stream string, attributes map[string]any) {
	n.t.Helper()
	toxics.Register("closing", new(closing))
	toxics.Register("narrow", new(narrow))
	shared.Toxic(n.t, n.proxy, name, kind, stream, attributes)
}

// latency delays each answer by up to 300 ms.
func (n *network) latency(draw int) {
	n.t.Helper()
	n.spoil("slow", "latency", "downstream", map[string]any{"latency": 10 + draw%300})
}

// silence drops all data, without closing a connection.
func (n *network) silence() {
	n.t.Helper()
	n.spoil("dead up", "timeout", "upstream", map[string]any{"timeout": 0})
	n.spoil("dead down", "timeout", "downstream", map[string]any{"timeout": 0})
}

// closed counts the connections that closing has ended.
var closed atomic.Int64

// closing is a toxic that ends a connection at random.
type closing struct {
	// Chance is the probability that a piece of data ends its connection.
	Chance float64 `json:"chance"`
}

// Pipe implements toxics.Toxic.
func (c *closing) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk != nil && rand.Float64() >= c.Chance { //nolint:gosec // a coin
				stub.Output <- chunk
				continue
			}
			if chunk != nil {
				closed.Add(1)
			}
			stub.Close()
			return
		}
	}
}

// narrow is a toxic that limits the rate of all connections together, in one direction.
// Toxiproxy's own bandwidth limits each connection.
type narrow struct {
	Rate int `json:"rate"` // bytes a second

	mu   sync.Mutex
	free time.Time // when the next piece of data may pass
}

// Pipe implements toxics.Toxic. All connections share w.
func (w *narrow) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			select {
			case <-time.After(w.wait(len(chunk.Data))):
				stub.Output <- chunk
			case <-stub.Interrupt:
				_ = stub.WriteOutput(chunk, patience) // data that was accepted must arrive
				return
			}
		}
	}
}

// wait returns how long n bytes take to pass, after the data before them.
func (w *narrow) wait(n int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(time.Duration(n) * time.Second / time.Duration(w.Rate))
	return time.Until(w.free)
}

// fix removes all toxics.
func (n *network) fix() { n.proxy.Toxics.ResetToxics(context.Background()) }

// cut resets every connection. New ones are accepted at once.
func (n *network) cut() {
	n.t.Helper()
	n.proxy.Stop()
	check.OK(n.t, n.proxy.Start())
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	check.OK(t, err)
	return u.Host
}
