package main

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
)

// TestLostDataIsGivenUpWithYesAlone: without a terminal the verb says what it would write,
// and writes nothing. With --yes the data that is there replaces what scanners expect. It
// does nothing if nothing is lost, and fails if no scanner runs.
func TestLostDataIsGivenUpWithYesAlone(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	identity := func() string { return o.rdb.HGet(t.Context(), o.prefix+":identity", "value").Val() }
	reports := func(note string) {
		t.Helper()
		_, beat := o.store.Registry().Heartbeat(t.Context(), "one", time.Minute, time.Hour)
		_, described := o.store.Registry().Describe(t.Context(), "one", []byte(note))
		if err := errors.Join(beat, described); err != nil {
			t.Fatal(err)
		}
	}
	accept := []string{"data", "accept"}
	o.wants(cli.Failed, "no scanner runs", append(accept, "--yes")...)
	reports(`{"instance":"one","problems":[]}`)
	o.wants(cli.Done, "nothing to accept", accept...)
	reports(`{"instance":"one","problems":[{"kind":"data_lost","severity":"broken","facts":{"expected":"LOST"}}]}`)
	o.wants(cli.Usage, "this would write to Redis that the data that is there replaces the lost data LOST", accept...)
	if identity() != "" {
		t.Errorf("redis has the identity %q, and nobody confirmed it", identity())
	}
	if err := o.rdb.HSet(t.Context(), o.prefix+":identity", "value", "THERE").Err(); err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Done, "the data THERE replaces LOST", append(accept, "--yes")...)
	if got := identity(); got != "THERE replaces LOST" {
		t.Errorf("redis has the identity %q", got)
	}
	o.wants(cli.Done, "nothing to accept", append(accept, "--yes")...)
}
