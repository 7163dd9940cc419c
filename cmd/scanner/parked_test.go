package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// TestWhatAReplayLeavesIsToldToScripts: the number of those that were replayed comes
// first, and as JSON what was left comes with it; the exit code is 1.
func TestWhatAReplayLeavesIsToldToScripts(t *testing.T) {
	t.Parallel()
	left := &operate.LeftError{
		Topic: "orders", Tasks: 2, IDs: []string{"a", strings.Repeat("x", 300)},
		Shards: &shard.UnreadableError{Topic: "orders", Shards: []shard.UnreadableShard{{Shard: 2, Error: "WRONGTYPE"}}},
	}
	if code := cli.Code(errors.Join(nil, left)); code != cli.Failed {
		t.Errorf("exit code %d", code)
	}
	if text := left.Error(); strings.Contains(text, strings.Repeat("x", 256)) || !strings.Contains(text, `2 tasks can't be read, and stay parked`) || !strings.Contains(text, "shard 2") {
		t.Errorf("it says %s", text)
	}
	for _, c := range []struct {
		format cli.Format
		left   *operate.LeftError
		want   string
	}{
		{cli.Text, left, "replayed 5\n"},
		{cli.JSON, nil, `{"replayed":5}` + "\n"},
		{cli.JSON, left, `{"replayed":5,"unreadable":2,"unreadable_ids":["a","` + strings.Repeat("x", 300) + `"],"unreadable_shards":[{"shard":2,"error":"WRONGTYPE"}]}` + "\n"},
	} {
		var out bytes.Buffer
		if err := printChanged(&out, c.format, "replayed", 5, c.left); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s: %s, want %s", c.format, out.String(), c.want)
		}
	}
}
