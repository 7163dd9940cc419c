package scanner

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
)

// TestEachConnectionHasItsShareOfTopics: a place that a topic leaves is taken before another
// connection is opened.
func TestEachConnectionHasItsShareOfTopics(t *testing.T) {
	t.Parallel()
	started := 0
	o, err := newOutbound(forward.Config{URLs: []string{"amqp://127.0.0.1:1/"}, Log: slog.New(slog.DiscardHandler)},
		func(*forward.Connection) { started++ })
	check.OK(t, err)
	o.most = 2
	var of []*forward.Connection
	var leave []func()
	for range 5 {
		c, release := o.take()
		of, leave = append(of, c), append(leave, release)
	}
	if started != 2 || of[0] != of[1] || of[2] != of[3] || of[0] == of[2] || of[4] == of[2] {
		t.Errorf("five topics opened %d connections besides the first, want 2", started)
	}
	leave[1]()
	leave[2]()
	for _, want := range []*forward.Connection{of[1], of[2], of[4]} {
		if c, _ := o.take(); c != want {
			t.Error("a topic took no place that was free")
		}
	}
	if _, _ = o.take(); started != 3 {
		t.Errorf("%d connections were opened, want 3", started)
	}
}

// TestTopicsOnSeveralConnections: each topic is served. The scanner is connected only if all
// connections are.
func TestTopicsOnSeveralConnections(t *testing.T) {
	t.Parallel()
	topics := map[string]string{}
	for i := range 5 {
		name := fmt.Sprint("topic-", i)
		topics[name] = declaring(name)
	}
	l := newLone(t, topics, nil)
	l.outbound.most = 2
	l.start()
	if n := len(l.outbound.all); n != 3 {
		t.Errorf("five topics have %d connections, want 3", n)
	}
	l.bridge.Stop()
	check.Until(t, "the loss to be noticed", func() bool { return len(l.rabbitProblems()) == 1 })
	check.OK(t, l.bridge.Start())
	check.Until(t, "all connections to be up", func() bool { return len(l.rabbitProblems()) == 0 })
	for name := range topics {
		check.Until(t, name+" to be ready again", func() bool {
			ready, _ := l.served(name).topic.publisher.Ready()
			return ready
		})
	}
}
