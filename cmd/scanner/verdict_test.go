package main

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/heartbeat"
)

// member and heard are Start and Heard of the package heartbeat.
func (o *operator) member(name string) *atomic.Pointer[balance.Member] {
	o.t.Helper()
	return heartbeat.Start(o.t, o.store, balance.Member{Instance: name})
}

func (o *operator) heard(name string, that func(balance.Member) bool) {
	o.t.Helper()
	heartbeat.Heard(o.t, o.store, name, that)
}

// TestSetTellsWhatScannersMakeOfIt: a scanner that refuses the document or can't deliver
// with it makes set and resume fail, but not pause. If no scanner runs, set says so; with
// --no-wait it says nothing.
func TestSetTellsWhatScannersMakeOfIt(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "topic orders: no scanner runs, so nobody has applied it yet", "topic", "set", "orders", "rate=1")
	if code, text := o.call("topic", "set", "orders", "rate=2", "--no-wait"); code != cli.Done ||
		!strings.HasSuffix(text, "topic orders written\n") {
		t.Errorf("--no-wait: %d, %s", code, text)
	}
	o.wants(cli.Usage, "no-wait", "topic", "set", "orders", "rate=2", "--no-wait", "--wait")
	says := o.member("one")
	o.wants(cli.Done, "topic orders: applied by 1 scanner", "topic", "set", "orders", "rate=3")
	o.wants(cli.Done, "topic orders: applied by 1 scanner", "topic", "set", "orders", "rate=3") // nothing to change

	says.Store(&balance.Member{Applied: math.MaxInt64, Blocked: map[string]string{"orders": "not_found"},
		Problems: []problem.Problem{problem.New(problem.ExchangeMissing, "orders", "no exchange")}})
	o.heard("one", func(m balance.Member) bool { return len(m.Blocked) > 0 })
	for _, verb := range [][]string{{"set", "orders", "rate=4"}, {"resume", "orders"}} {
		o.wants(cli.Failed, "scanner: topic orders: blocked by 1 scanner: no exchange", append([]string{"topic"}, verb...)...)
	}
	o.wants(cli.Done, "topic orders: blocked by 1 scanner: no exchange", "topic", "pause", "orders")

	says.Store(&balance.Member{Applied: math.MaxInt64, Errors: map[string]string{"orders": "unknown key"}})
	o.heard("one", func(m balance.Member) bool { return len(m.Errors) > 0 })
	o.wants(cli.Failed, "refused by 1 scanner: unknown key", "topic", "pause", "orders")

	says.Store(&balance.Member{Applied: 1})
	o.heard("one", func(m balance.Member) bool { return m.Applied == 1 })
	o.wants(cli.Done, "not applied yet by 1 scanner: it has not been read yet; see `scanner status --topic orders`",
		"topic", "set", "orders", "rate=5")
}

// TestSetWithoutRedisSaysThatItCannotTell: the document is written nevertheless.
func TestSetWithoutRedisSaysThatItCannotTell(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.configure(t, "redis: {addrs: ['127.0.0.1:1']}\n")
	o.wants(cli.Done, "it isn't known whether scanners apply it: ", "topic", "set", "orders", "rate=1")
	o.wants(cli.Done, "rate: 1", "topic", "get", "orders")
}
