package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// newConsulOperator returns an operator whose topics are in Consul.
func newConsulOperator(t *testing.T) *operator {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	return newOperator(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\n", addr, prefix))
}

// begin starts a verb in the background; its exit code comes when it ends, or ctx ends it.
func (o *operator) begin(ctx context.Context, told *check.Log, args ...string) <-chan int {
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append(args, "--config", o.config), told, told) }()
	return ended
}

// setAndWait begins a change while no scanner runs.
func (o *operator) setAndWait(ctx context.Context, shards int, more ...string) (*check.Log, <-chan int) {
	o.t.Helper()
	told := &check.Log{}
	args := append([]string{"topic", "set", "orders", fmt.Sprintf("shards=%d", shards), "--wait"}, more...)
	ended := o.begin(ctx, told, args...)
	check.Until(o.t, "it to say that no scanner runs",
		func() bool { return strings.Contains(told.String(), "topic orders: no scanner runs") })
	return told, ended
}

// fails waits for the exit code of a failure, and checks parts of the output.
func (o *operator) fails(told *check.Log, ended <-chan int, parts ...string) {
	o.t.Helper()
	if got := check.Receive(o.t, "topic set --wait to end", ended); got != cli.Failed {
		o.t.Errorf("code %d, want %d", got, cli.Failed)
	}
	for _, part := range parts {
		if !strings.Contains(told.String(), part) {
			o.t.Errorf("it says %q, want %q in it", told, part)
		}
	}
}

// TestAChangeThatIsOvertakenIsNotWaitedFor: if a second change or the topic's removal
// supersedes the change, the waiting ends and names the cause.
func TestAChangeThatIsOvertakenIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	told, ended := o.setAndWait(t.Context(), 8)
	o.wants(cli.Done, "shards: 8 -> 16", "topic", "set", "orders", "shards=16")
	o.fails(told, ended, "the change to 8 shards was superseded", "says 16 shards now")

	told, ended = o.setAndWait(t.Context(), 12)
	o.wants(cli.Done, "paused", "topic", "pause", "orders") // asks for no other shard count
	o.wants(cli.Done, "removed", "topic", "rm", "orders", "--yes")
	o.fails(told, ended, "the change to 12 shards was superseded", "document was removed")
}

// TestWaitingEndsAndTheChangeGoesOn: Ctrl-C and --timeout end only the waiting, and the
// output says so.
func TestWaitingEndsAndTheChangeGoesOn(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	ctx, interrupt := context.WithCancel(t.Context())
	told, ended := o.setAndWait(ctx, 8)
	interrupt()
	o.fails(told, ended, "waiting was interrupted; the change goes on, see `scanner status --topic orders`")
	told, ended = o.setAndWait(t.Context(), 9, "--timeout", "2s")
	o.fails(told, ended, "not over within 2s; the change goes on")
	o.wants(cli.Done, "shards: 9", "topic", "get", "orders")
	o.wants(cli.Usage, "--timeout is how long to --wait", "topic", "set", "orders", "shards=8", "--timeout", "2s")
	o.wants(cli.Usage, "--timeout is how long to --wait", "topic", "set", "orders", "shards=8", "--wait", "--timeout",
		"-2s")
}
