package livepage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// crowd returns a healthy fleet with topics whose tasks aren't due yet.
func crowd(topics int) operate.Status {
	s := operate.Status{Fleet: []balance.Member{
		{Instance: "scanner-b-9", Heartbeat: now.Add(-time.Hour), Started: now.Add(-2 * time.Hour), Version: "v1.2.3",
			Admin: "10.0.0.9:9320", Source: "consul", Applied: 7},
		{Instance: "scanner-c-3", Alive: true, Heartbeat: now, Started: now.Add(-90 * time.Minute), Version: "v1.2.3",
			Admin: "10.0.0.3:9320", Source: "consul", Applied: 123456},
		{Instance: "scanner-a-1", Alive: true, Heartbeat: now, Started: now.Add(-time.Minute), Version: "v1.2.3",
			Admin: "10.0.0.1:9320", Source: "consul", Applied: 123456},
	}}
	for i := range topics {
		s.Topics = append(s.Topics, operate.TopicStatus{
			Topic: fmt.Sprintf("topic-%02d", i), Shards: 4, Epoch: 1, Phase: shard.Stable, Polled: 4, Pending: 40_000,
			Oldest: now.Add(59 * time.Minute), PerShard: shardsOf(4, nil),
		})
	}
	return s
}

// drawn returns the page of a status in a terminal of 80x24.
func drawn(s operate.Status) string { return strings.Join(pageOf(s, 80, 24).lines(now), "\n") }

// TestTasksThatWaitAreSeen: a topic with 40,000 tasks due in an hour doesn't look empty.
func TestTasksThatWaitAreSeen(t *testing.T) {
	t.Parallel()
	page := drawn(crowd(1))
	var head, row string
	for line := range strings.Lines(page) {
		if strings.Contains(line, "BACKLOG") {
			head = line
		}
		if strings.HasPrefix(line, ">  topic-00") {
			row = line
		}
	}
	if got := strings.Fields(head); fmt.Sprint(got) != "[TOPIC M STATE FWD/S STORED BACKLOG RETRY PARKED LATE NEXT DUE]" {
		t.Errorf("the columns are %q", head)
	}
	if got := strings.Fields(row); fmt.Sprint(got) != "[> topic-00 4 stable - 40000 0 0 0 - 59m0s]" {
		t.Errorf("the row is %q in\n%s", row, page)
	}
}

// TestManyTopicsFitASmallTerminal: at least ten topics are shown, even with many lines
// about the chosen topic and the fleet.
func TestManyTopicsFitASmallTerminal(t *testing.T) {
	t.Parallel()
	s := crowd(30)
	s.Fleet = append(s.Fleet, s.Fleet...)
	s.Topics[0].Notes = []string{"3 tasks wait for another attempt: returned: 312 NO_ROUTE"}
	s.Topics[0].PerShard = shardsOf(512, nil)
	s.Topics[0].Settings = map[string]string{"declare.queue": "a-queue-with-a-long-name.due", "declare.type": "direct",
		"declare.queue_type": "quorum", "routing_key": "order.due", "window": "500"}
	page := drawn(s)
	rows := 0
	for line := range strings.Lines(page) {
		if len(line) > 3 && strings.HasPrefix(line[3:], "topic-") {
			rows++
		}
	}
	if rows < 10 {
		t.Errorf("%d topics are shown:\n%s", rows, page)
	}
}

// TestTheFleetFitsASmallTerminal: the column about applied documents isn't cut off. Live
// scanners come first, by name.
func TestTheFleetFitsASmallTerminal(t *testing.T) {
	t.Parallel()
	page := drawn(crowd(1))
	at := 0
	for _, line := range []string{"INSTANCE", "scanner-a-1  live", "scanner-c-3  live", "scanner-b-9  dead"} {
		next := strings.Index(page, line)
		if next < at {
			t.Errorf("%q is not where it belongs", line)
		}
		at = max(at, next)
	}
	if n := strings.Count(page, "consul, index 123456"); n != 2 || !strings.Contains(page, "CONFIG") {
		t.Errorf("%d members say what they work by", n)
	}
	long := crowd(1)
	long.Fleet[1].Instance = "duefleet-scanner-7c9f8d6b5-xkxj2-1-123456-and-more-of-it-than-fits"
	if wide := drawn(long); !strings.Contains(wide, ">  live") || strings.Count(wide, "consul, index 123456") != 2 {
		t.Errorf("a long name leaves no room:\n%s", wide)
	}
	if t.Failed() {
		t.Log("\n" + page)
	}
}
