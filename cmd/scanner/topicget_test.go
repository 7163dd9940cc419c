package main

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// TestADryRunWritesNothing: it shows the difference, and fails if set would fail.
func TestADryRunWritesNothing(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "orders.rate: (none) -> 5\ntopic orders: a dry run, nothing was written\n", "topic", "set", "orders",
		"rate=5", "--dry-run")
	o.wants(cli.NotFound, "has no document", "topic", "get", "orders")
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	o.wants(cli.Done, "orders.shards: 4 -> 8\norders.rate: 5 -> 6\ntopic orders: a dry run", "topic", "set", "orders",
		"shards=8", "rate=6", "--dry-run")
	o.wants(cli.Done, "nothing to change", "topic", "set", "orders", "rate=5", "--dry-run")
	o.wants(cli.Failed, "shards: must be 1 to 4096", "topic", "set", "orders", "shards=0", "--dry-run")
	o.wants(cli.Usage, "dry-run", "topic", "set", "orders", "shards=8", "--dry-run", "--wait")
	if code, text := o.call("topic", "get", "orders"); code != cli.Done || text != "rate: 5\n" {
		t.Errorf("after dry runs: %d, %q", code, text)
	}
}

// TestEffectiveSettings: --effective fills in the defaults, and refuses a broken document.
// -o json also holds the document as it is stored.
func TestEffectiveSettings(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.puts(map[string]string{"orders": "# ours\nrate: 5\n", "broken": "shards: 0\nrate: 6\n"})
	o.golden("topic_effective", "topic", "get", "orders", "--effective")
	o.wants(cli.Failed, "broken:1: shards: must be 1 to 4096", "topic", "get", "broken", "--effective")
	object := func(args ...string) (got topicconfig.DocumentLine) {
		t.Helper()
		code, text := o.call(append([]string{"topic", "get", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != cli.Done || got.Index == 0 {
			t.Fatalf("%v: %d, %v, %s", args, code, err, text)
		}
		got.Index = 0
		return got
	}
	five := topicconfig.DocumentLine{Topic: "orders", Settings: map[string]any{"rate": 5.0}, Document: "# ours\nrate: 5\n"}
	if got := object("orders"); !reflect.DeepEqual(got, five) {
		t.Errorf("got %+v, want %+v", got, five)
	}
	if got := object("orders", "--effective"); got.Settings["rate"] != 5.0 || got.Settings["tick"] != "1s" ||
		got.Settings["exchange"] != "orders" || got.Document != five.Document {
		t.Errorf("--effective: got %+v", got)
	}
	broken := topicconfig.DocumentLine{Topic: "broken", Settings: map[string]any{"rate": 6.0},
		Document: "shards: 0\nrate: 6\n",
		Error:    "broken:1: shards: must be 1 to 4096; got 0"}
	if got := object("broken"); !reflect.DeepEqual(got, broken) {
		t.Errorf("got %+v, want %+v", got, broken)
	}
}

// TestTopicsOfAFileArePausedThere: pause and resume say what to write to which file, and
// when it takes effect.
func TestTopicsOfAFileArePausedThere(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {orders: {}, mails: {paused: true}}\n")
	o.wants(cli.Failed, "write paused: true under topics.orders in "+o.config+", the file of each scanner: one that "+
		"runs reads it within a second, at once on SIGHUP",
		"topic", "pause", "orders")
	o.wants(cli.Failed, "write paused: false under topics.mails in "+o.config, "topic", "resume", "mails")
	o.wants(cli.Done, "topic mails: nothing to change, paused is true in "+o.config, "topic", "pause", "mails")
	o.wants(cli.NotFound, "no topic none in "+o.config, "topic", "pause", "none")
	o.wants(cli.Failed, "consul.addr is empty, and `scanner topic` reads and writes topics in consul only; edit topics "+
		"in "+o.config, "topic", "set", "orders", "rate=1")
	o.more = "topics: {orders: {shards: 0}}\n"
	o.configure(t, "")
	o.wants(cli.Failed, "fix that first", "topic", "pause", "orders")
}
