//go:build measure

package forward_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMeasureHalfOpenConnection(t *testing.T) {
	network, via := newProxy(t, servertest.RabbitMQ(t))
	p, got := publisher(t, connectAsIs(t, forward.Config{URLs: []string{via}, Heartbeat: 30 * time.Second}), "topic",
		forward.Route{
			Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
		})
	roomy(t, p, 200)
	network.frozen.shut()
	defer network.frozen.open()
	if late := overdue(t, p, got); late > 5*time.Second {
		t.Errorf("resolved %v after the deadline", late)
	}
}

func TestMeasureWriteTimeout(t *testing.T) {
	if took := writeIntoNothing(t); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// The end of the process waits for both Runs.
func TestMeasureRunEndsInTime(t *testing.T) {
	asIs := func(cfg forward.Config) forward.Config { return cfg }
	if took := endFrozen(t, asIs); took > 2*time.Second {
		t.Errorf("took %v to end", took)
	}
}

func TestMeasureWireEndsAWriteThatBlocks(t *testing.T) {
	const timeout = 200 * time.Millisecond
	if took := forward.EndBlockedWrite(t, timeout); took > 5*time.Second {
		t.Errorf("an error after %v, want one after %v", took, timeout)
	}
}
