package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
)

// stableTopic has tasks in every state.
var stableTopic = admin.TopicStatus{
	Topic: "orders", Shards: 2, Epoch: 7, Phase: shard.Stable, Polled: 2,
	Settings: map[string]string{"exchange": "mail", "rate": "100", "declare.queue": "orders.due"}, Rate: 100,
	Limited:   true,
	PerSecond: 98.765, Median: .0123, Worst: 3.456,
	Pending: 123456, Backlog: 12, Leased: 500, Parked: 3, Oldest: now.Add(-90 * time.Second),
	PerShard: []shard.Stats{
		{Shard: 0, Pending: 123455, Backlog: 12, Leased: 500, Parked: 3, Oldest: now.Add(-90 * time.Second)},
		{Shard: 1, Pending: 1, Oldest: now.Add(36*time.Hour + 1500*time.Millisecond)},
	},
	Notes: []string{"exchange 'orders' not found\nin vhost '/'"},
}

// movingTopic changes from one shard to three.
var movingTopic = admin.TopicStatus{
	Topic: "a.topic-with_a.long-name", Shards: 3, Previous: 1, Epoch: 2, Phase: shard.Migrating, Polled: 3,
	Change:   &admin.Change{Clean: 1, Moved: 40_000, Misplaced: 26_666, Rate: 2345.6, End: now.Add(11 * time.Second)},
	PerShard: []shard.Stats{{Shard: 0}, {Shard: 1}, {Shard: 2}},
}

var members = []balance.Member{
	{
		Instance: "host-a-4711-123456", Heartbeat: now.Add(-400 * time.Millisecond), Alive: true, Version: "v1.2.3",
		Started: now.Add(-26 * time.Hour), Admin: "127.0.0.1:9320", Applied: 42,
	},
	{
		Instance: "b-1-1", Heartbeat: now.Add(-65 * time.Second), Version: "devel",
		Started: now.Add(-time.Minute), Admin: "10.0.0.7:9320", Applied: 7,
		Errors: map[string]string{"orders": "shards: must be 1 to 4096"},
	},
}

// fleetStatus returns a status with a stable topic and a migrating one.
var fleetStatus = admin.Status{Topics: []admin.TopicStatus{stableTopic, movingTopic}, Fleet: members}

// TestStatusAsText compares the text of a status with testdata.
func TestStatusAsText(t *testing.T) {
	t.Parallel()
	unsafe := admin.Status{Fleet: members[:1],
		Problems: []problem.Problem{problem.Unsafe([]string{"127.0.0.1:6379 evicts tasks at maxmemory"})}}
	for name, c := range map[string]struct {
		status admin.Status
		shards bool
	}{
		"status":        {fleetStatus, false},
		"status_shards": {fleetStatus, true},
		"status_unsafe": {unsafe, false},
		"status_empty":  {admin.Status{}, false},
	} {
		var out bytes.Buffer
		if err := (statusView{shards: c.shards}).print(&out, c.status, now); err != nil {
			t.Fatal(err)
		}
		isGolden(t, name, out.String())
	}
}

// TestLiveScannersComeFirst: live members are sorted by name. Dead ones follow, the latest
// heartbeat first.
func TestLiveScannersComeFirst(t *testing.T) {
	t.Parallel()
	fleet := []balance.Member{
		{Instance: "d", Heartbeat: now.Add(-time.Hour)},
		{Instance: "c", Heartbeat: now.Add(-time.Minute)},
		{Instance: "b", Alive: true, Heartbeat: now.Add(-time.Second)},
		{Instance: "a", Alive: true, Heartbeat: now},
	}
	names := ""
	for _, m := range inOrder(fleet) {
		names += m.Instance
	}
	if names != "abcd" {
		t.Errorf("the order is %s, want abcd", names)
	}
}
