package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTopicRemoved: a topic with tasks is removed only with --purge. Then the fleet stops
// serving it, and producers get an error.
func TestTopicRemoved(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	far := orders("orders", "far", 10, time.Now().Add(time.Hour), time.Hour, 0)
	check.OK(t, w.recorder.Schedule(t.Context(), far...))
	checkError(t, "rm of a topic that holds tasks", w.scanner("topic", "rm", "orders"), 1, "10 tasks", "--purge")
	if got := w.status().Topic("orders").Pending; got != 10 {
		t.Fatalf("%d tasks are stored after a removal that was refused, want 10", got)
	}
	checkError(t, "rm without a terminal", w.scanner("topic", "rm", "orders", "--purge"), 2,
		"delete topic orders with 10 tasks", "--yes")
	const asked = "delete topic orders with 10 tasks? [y/N] "
	if out := w.answer("n\n", "topic", "rm", "orders", "--purge"); out.Code != 1 || !strings.Contains(out.Stderr, asked) ||
		!strings.Contains(out.Stderr, "nothing was deleted") {
		t.Errorf("rm that is declined: code %d, %q; want 1, and %q", out.Code, out.Stderr, asked)
	}
	if got := w.status().Topic("orders").Pending; got != 10 {
		t.Fatalf("%d tasks are stored after a removal that nobody confirmed, want 10", got)
	}
	if out := must(t, w.answer("y\n", "topic", "rm", "orders", "--purge")); !strings.Contains(out.Stderr, asked) {
		t.Errorf("rm says %q, want %q", out.Stderr, asked)
	}
	w.awaitUnserved()
	checkError(t, "rm of a topic that was removed", w.scanner("topic", "rm", "orders", "--purge", "--yes"), 3,
		"unknown topic")
	out := w.producer("schedule", "--topic", "orders", "--id", "late", "--in", "1s")
	checkError(t, "schedule after the removal", out, 1, "orders")
}

// answer runs a command of scanner on a terminal, and types text there.
func (w *fixture) answer(text string, args ...string) fleet.Output {
	w.t.Helper()
	return run(w.t, fleet.Command{
		Path: programs.Scanner, Args: append(args, "--config", w.file(operatorRole)),
		Stdin: strings.NewReader(text), Terminal: true,
	})
}

// TestOrphan: a topic without a document is still served, even by scanners that start
// later. It is shown as an orphan until it is set or removed. If it is removed with its
// tasks and made again, it is empty.
func TestOrphan(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	// This task isn't in the ledger, since it will be purged.
	later := producer.Request{Topic: "orders", ID: "later", When: producer.In(time.Hour)}
	_, err := w.recorder.Client.Schedule(t.Context(), later)
	check.OK(t, err)
	orphan := func(is bool) func() bool {
		return rarely(func() bool { return strings.Contains(fmt.Sprint(w.status().Topic("orders").Notes), "orphan") == is })
	}
	w.vanish("orders")
	check.Until(t, "status to show an orphan", orphan(true))
	w.send("orders", "served-on", 20)
	w.arrive("the tasks of an orphan")
	w.stop()
	w.start(2)
	check.Until(t, "status to show an orphan to scanners that were started since", orphan(true))
	w.send("orders", "restored", 20)
	w.arrive("the tasks of an orphan that was restored")
	check.Until(t, "what arrived to be settled", rarely(func() bool { return w.status().Topic("orders").Pending == 1 }))
	checkError(t, "rm of an orphan that holds a task", w.scanner("topic", "rm", "orders"), 1, "1 tasks", "--purge")
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	check.Until(t, "status to show an orphan no more", orphan(false))

	w.vanish("orders")
	check.Until(t, "status to show an orphan again", orphan(true))
	must(t, w.scanner("topic", "rm", "orders", "--purge", "--yes"))
	w.awaitUnserved()
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	w.awaitTopic("orders")
	w.send("orders", "anew", 20)
	w.check()
	if got := w.status().Topic("orders").Pending; got != 0 {
		t.Errorf("%d tasks are stored in a topic that was made again, want none", got)
	}
}

// vanish deletes a topic's document directly in Consul.
func (w *source) vanish(topic string) {
	w.t.Helper()
	_, err := w.kv().Delete(w.settings.ConsulPrefix+"/topics/"+topic, nil)
	check.OK(w.t, err)
}

// awaitUnserved waits until no scanner serves any topic.
func (w *source) awaitUnserved() {
	w.t.Helper()
	check.Until(w.t, "no scanner to serve a topic", rarely(func() bool {
		for _, s := range w.scanners {
			if readMetrics(w.t, s).sum("duefleet_workers") != 0 {
				return false
			}
		}
		return len(w.status().Topics) == 0
	}))
}
