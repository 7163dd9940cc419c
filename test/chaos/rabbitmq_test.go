//go:build chaos

package chaos_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestRabbitMQKilled: kill -9 and restart of the broker.
func TestRabbitMQKilled(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	// This version of RabbitMQ can lose recent declarations.
	r.ctl("eval", "mnesia:dump_log().")
	check.OK(t, r.rabbitmq.Kill())
	r.lasts(4 * time.Second)
	check.OK(t, r.rabbitmq.Restart(t.Context()))
	back, n := time.Now(), r.recorder.Ledger.Count()
	r.await("tasks after the broker came back", func() bool { return r.recorder.Ledger.Count() > n+loadBatch })
	if took := time.Since(back); took > 15*time.Second {
		t.Errorf("the first tasks came %s after the broker was back, want them within 15 s", took)
	}
	r.lasts(2 * time.Second)
	r.verdict("RabbitMQ: kill -9 and restart", allowance{repeats: 3 * inFlight})
}

// TestRabbitMQReset: connections between scanners and the broker are reset.
func TestRabbitMQReset(t *testing.T) {
	r := newHarness(t, options{badRabbit: true})
	r.begin()
	const cuts = 8
	for range cuts {
		r.toRabbit.cut()
		r.lasts(time.Second)
	}
	r.verdict("RabbitMQ: connections reset, eight times", allowance{repeats: cuts * 3 * inFlight})
}

// TestRabbitMQHalfOpen: the network to the broker drops all data without closing
// connections.
func TestRabbitMQHalfOpen(t *testing.T) {
	r := newHarness(t, options{badRabbit: true})
	r.begin()
	r.toRabbit.silence()
	r.lasts(10 * time.Second)
	r.toRabbit.fix()
	r.toRabbit.cut()
	fixed, n := time.Now(), r.recorder.Ledger.Count()
	r.await("tasks over the repaired network", func() bool { return r.recorder.Ledger.Count() > n+loadBatch })
	if took := time.Since(fixed); took > 15*time.Second {
		t.Errorf("the first tasks came %s after the network was repaired, want them within 15 s", took)
	}
	r.verdict("RabbitMQ: half-open connection, 10 s", allowance{repeats: 3 * inFlight})
}

// TestRabbitMQSlow: latency, low bandwidth, resets.
func TestRabbitMQSlow(t *testing.T) {
	checkSlow(t, "RabbitMQ", options{badRabbit: true}, func(r *harness) *network { return r.toRabbit })
}

// TestRabbitMQAlarm: a memory alarm, then a disk alarm, each for longer than two
// heartbeats. Claiming stops, no attempt is counted, and everything continues without
// help.
func TestRabbitMQAlarm(t *testing.T) {
	r := newHarness(t, options{topic: fleet.Topic{"max_attempts": 2}})
	r.begin()
	for _, alarm := range [][2][]string{
		{{"set_vm_memory_high_watermark", "0"}, {"set_vm_memory_high_watermark", "0.4"}},
		{{"set_disk_free_limit", "100000GB"}, {"set_disk_free_limit", "50MB"}},
	} {
		r.ctl(alarm[0]...)
		r.await("the scanners to see the alarm", func() bool { return r.status().Topic("orders").Backlog > 1000 })
		r.lasts(22 * time.Second)
		n := r.recorder.Ledger.Count()
		r.ctl(alarm[1]...)
		r.await("tasks after the alarm", func() bool { return r.recorder.Ledger.Count() > n+10*loadBatch })
	}
	r.verdict("RabbitMQ: memory alarm, disk alarm", allowance{repeats: 2 * 3 * inFlight})
}

// TestExchangeDeleted: one topic's exchange is deleted under load. That topic waits and
// status says why; the other topic is as punctual as before.
func TestExchangeDeleted(t *testing.T) {
	other := fleet.Topic{}
	r := newHarness(t, options{more: map[string]fleet.Topic{"invoices": other}, exchange: true})
	r.consume("invoices.due")
	r.begin("orders", "invoices")
	r.lasts(4 * time.Second)
	before := r.arrivals.since("invoices", 0)
	r.broker(func(ch *amqp.Channel) error { return ch.ExchangeDelete("orders", false, false) })
	n := r.arrivals.count("invoices")
	r.await("the topic to say why", func() bool { return len(r.status().Topic("orders").Notes) > 0 })
	r.lasts(6 * time.Second)
	during := r.arrivals.since("invoices", n)
	r.bind()
	if limit := 3*before.At(0.99) + 20*time.Millisecond; during.At(0.99) > limit {
		t.Errorf("the other topic's lateness is p99 %s while the exchange is missing, %s before", during.At(0.99),
			before.At(0.99))
	}
	r.verdict("RabbitMQ: exchange deleted", allowance{repeats: 3 * inFlight})
}

// TestUnbound: no queue is bound. Tasks are kept, tried again, and parked with the
// reason. A replay delivers them.
func TestUnbound(t *testing.T) {
	r := newHarness(t, options{topic: fleet.Topic{"max_attempts": 3, "backoff": map[string]any{"min": "100ms",
		"max": "300ms"}}, exchange: true})
	r.begin()
	r.broker(func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, "orders.due", "orders", nil) })
	r.await("parked tasks", func() bool { return r.status().Topic("orders").Parked > 2000 })
	r.bind()
	r.load.stop()
	replayed := func() bool {
		if out := r.run(programs.Scanner, "parked", "replay", "--topic", "orders", "--all", "--yes"); out.Code != 0 {
			t.Fatal(out.Stderr)
		}
		return r.status().Topic("orders").Parked == 0
	}
	r.await("the replay", replayed)
	r.lasts(2 * time.Second)
	r.await("the replay of the last", replayed)
	r.verdict("RabbitMQ: no queue bound", allowance{})
}

// TestQueueFull: a full queue rejects messages. Tasks wait, and are delivered when there
// is room.
func TestQueueFull(t *testing.T) {
	r := newHarness(t, options{topic: fleet.Topic{"max_attempts": 1000, "backoff": map[string]any{"min": "100ms",
		"max": "1s"}}, exchange: true})
	r.begin()
	r.ctl("set_policy", "full", "^orders", `{"max-length":10,"overflow":"reject-publish"}`, "--apply-to", "queues")
	r.lasts(5 * time.Second)
	r.ctl("clear_policy", "full")
	r.verdict("RabbitMQ: queue full, reject-publish", allowance{})
}

// bind declares the exchange and the queue of topic orders, as an operator would.
func (r *harness) bind() {
	r.t.Helper()
	r.broker(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare("orders", "direct", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(queue, "orders.due", "orders", false, nil)
	})
}
