package scanner

import (
	"testing"

	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/test/wait"
)

// remove takes a topic out of the file and out of Redis.
func (l *lone) remove(name string, left map[string]string) {
	l.t.Helper()
	l.write(left)
	_, err := operate.Removal{Topic: l.topic(name)}.Run(l.t.Context())
	l.ok(err)
	wait.For(l.t, "topic "+name+" to be served no more", func() bool { return l.served(name) == nil && !l.exports(name) })
}

func TestWhatARemovedTopicDeclaredIsNotDeclaredAgain(t *testing.T) {
	t.Parallel()
	witness := map[string]string{"witness": declaring("witness")}
	l := newLone(t, map[string]string{"witness": witness["witness"], "orders": declaring("orders")}, nil)
	l.start()
	l.remove("orders", witness)
	conn := l.broker()
	ch, err := conn.Channel()
	l.ok(err)
	l.ok(ch.ExchangeDelete("orders", false, false))
	for range 3 {
		l.ok(ch.ExchangeDelete("witness", false, false))
		l.bridge.Stop()
		l.ok(l.bridge.Start())
		wait.For(t, "the other topic's exchange to be declared again", func() bool { return l.declared(conn, "witness") })
	}
	if l.declared(conn, "orders") {
		t.Error("the exchange of a topic that was removed is there again")
	}
}

func TestATopicMadeAnewKeepsItsMetricsWhenTheOldOneEnds(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	old := l.served("orders")
	l.mu.Lock()
	delete(l.topics, "orders")
	l.serve("orders", *old.settings())
	l.mu.Unlock()
	l.ok(l.retire(old))
	if !l.exports("orders") {
		t.Error("the metrics of a topic that is served are not exported")
	}
	if _, why := old.publisher.Ready(); why != "stopped" {
		t.Errorf("the old publisher is %q, want it stopped", why)
	}
}

func TestATopicThatItsRemovalBringsBackIsServedAgain(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	wait.For(t, "the document to be kept", func() bool {
		doc, err := l.topic("orders").Document(t.Context())
		l.ok(err)
		return doc != nil
	})
	l.write(nil)
	p, err := l.topic("orders").Placement(t.Context())
	l.ok(err)
	removed, err := l.topic("orders").Remove(t.Context(), p)
	l.ok(err)
	wait.For(t, "the topic to be served no more", func() bool { return removed && l.served("orders") == nil })
	_, err = l.topic("orders").Ensure(t.Context(), p.Shards)
	l.ok(err)
	wait.For(t, "the topic to be served", func() bool { return l.served("orders") != nil })
}
