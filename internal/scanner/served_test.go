package scanner

import (
	"net"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestATopicIsServedOnceRedisAnswered: before that the log doesn't say that it is served.
func TestATopicIsServedOnceRedisAnswered(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	_ = closed.Close()
	away := newLoneOn(t, closed.Addr().String(), "nowhere", map[string]string{"orders": declaring("orders")}, nil)
	away.run()
	wait.For(t, "the scanner to miss Redis", func() bool {
		return away.served("orders") != nil &&
			len(away.said.of("redis does not serve")) > 0
	})
	if lines := away.said.of("topic served"); len(lines) > 0 {
		t.Errorf("without Redis it says %q", lines)
	}

	addr, prefix := servertest.Redis(t)
	l := newLoneOn(t, addr, prefix, map[string]string{"orders": declaring("orders", "shards: 2")}, nil)
	l.start()
	wait.For(t, "the log to say that the topic is served", func() bool { return len(l.said.of("topic served")) > 0 })
	if lines := l.said.of(`msg="topic served" topic=orders shards=2 exchange=orders`); len(lines) != 1 {
		t.Errorf("it says %q", l.said.of("topic served"))
	}
}
