package scanner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// recur stores a recurring task of topic orders, with its first run due now.
func (l *lone) recur(id string, r task.Recurrence) {
	l.t.Helper()
	body, err := shard.Encode(&task.Task{Payload: []byte("p"), Headers: map[string]string{"h": "v"}, Recurrence: &r})
	check.OK(l.t, err)
	e := shard.Entry{ID: id, When: task.Now(), Body: body}
	check.OK(l.t, router.New(l.store).Topic("orders").Schedule(l.t.Context(), []shard.Entry{e})[0].Err)
}

// arrived returns the messages of the queue orders.due as they come.
func (l *lone) arrived() <-chan amqp.Delivery {
	l.t.Helper()
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	messages, err := ch.Consume("orders.due", "", true, false, false, false, nil)
	check.OK(l.t, err)
	return messages
}

// TestRunsOfARecurringTask: each comes once, at its time, as a message with an ID of its own
// and the ID of its task. The last one removes the task.
func TestRunsOfARecurringTask(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms")
	messages := l.arrived()
	l.recur("a", task.Recurrence{Every: time.Second, Runs: 3, Each: true}) // also if this machine is busy
	var first time.Time
	for i := range 3 {
		m := check.Receive(t, "a run", messages)
		due := time.UnixMilli(m.Headers[task.HeaderDue].(int64)) //nolint:forcetypeassert // else the test fails
		if i == 0 {
			first = due
		}
		want := first.Add(time.Duration(i) * time.Second)
		if !due.Equal(want) || m.MessageId != task.RunID("a", due) || m.Headers[task.HeaderSeries] != "a" ||
			m.Headers["h"] != "v" || string(m.Body) != "p" || m.Headers[task.HeaderRedelivered] != false {
			t.Errorf("run %d, due %s, is %s %v", i, want, m.MessageId, m.Headers)
		}
	}
	check.Until(t, "the task to end", l.empty)
}

// TestMissedRuns: after a pause one run stands for all that were missed, unless the rule asks
// for each.
func TestMissedRuns(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms", "paused: true")
	messages := l.arrived()
	l.recur("one", task.Recurrence{Every: time.Second, Runs: 2})
	l.recur("each", task.Recurrence{Every: time.Second, Runs: 3, Each: true})
	begun := time.Now()
	check.Until(t, "three runs to be missed", func() bool { return time.Since(begun) > 3500*time.Millisecond })
	l.apply("tick: 20ms")
	dues := map[string][]int64{}
	for range 5 {
		m := check.Receive(t, "a run", messages)
		series := fmt.Sprint(m.Headers[task.HeaderSeries])
		dues[series] = append(dues[series], m.Headers[task.HeaderDue].(int64)) //nolint:forcetypeassert // else the test fails
	}
	if d := dues["each"]; len(d) != 3 || d[1]-d[0] != 1000 || d[2]-d[1] != 1000 {
		t.Errorf("with each, the runs were due at %v", d)
	}
	if d := dues["one"]; len(d) != 2 || d[1]-d[0] < 4000 || (d[1]-d[0])%1000 != 0 {
		t.Errorf("without each, the runs were due at %v", d)
	}
}

// TestARunThatNoQueueTakesIsParkedAlone: it becomes a task of its own, which can be replayed.
// The recurring task goes on.
func TestARunThatNoQueueTakesIsParkedAlone(t *testing.T) {
	t.Parallel()
	const settings = "exchange: %s, routing_key: orders.due, tick: 20ms, max_attempts: 2, backoff: {min: 20ms, max: 20ms}"
	l := newLone(t, map[string]string{"orders": "{shards: 4, " + fmt.Sprintf(settings, "amq.direct") + "}"}, nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	_, err = ch.QueueDeclare("orders.due", true, false, false, false, nil)
	check.OK(l.t, err)
	l.start()
	l.recur("a", task.Recurrence{Every: time.Second})
	var parked []shard.Stored
	check.Until(t, "parked runs", func() bool {
		parked = nil
		for at := range 4 {
			some, err := l.topic("orders").Shard(at).List(shard.SpanOf(task.Parked), "").Next(t.Context())
			check.OK(l.t, err)
			parked = append(parked, some...)
		}
		return len(parked) >= 2
	})
	slices.SortFunc(parked, func(a, b shard.Stored) int { return strings.Compare(a.ID, b.ID) })
	for i, s := range parked {
		if want := task.RunID("a", s.Due); s.ID != want || !strings.Contains(s.Reason, "312 NO_ROUTE") || s.Attempt != 3 {
			t.Errorf("parked run %d: %s after %d attempts: %s", i, s.ID, s.Attempt-1, s.Reason)
		}
	}
	messages := l.arrived()
	l.write(map[string]string{"orders": "{shards: 4, " + fmt.Sprintf(settings, `""`) + "}"})
	next := check.Receive(t, "a run", messages)
	if next.MessageId <= parked[len(parked)-1].ID || next.Headers[task.HeaderSeries] != "a" {
		t.Errorf("after the parked runs comes %s", next.MessageId)
	}
	p, err := l.topic("orders").Placement(t.Context())
	check.OK(l.t, err)
	_, err = l.topic("orders").Shard(p.New(parked[0].ID)).Replay(t.Context(), parked[0].ID)
	check.OK(l.t, err)
	for next.MessageId != parked[0].ID {
		next = check.Receive(t, "the replayed run", messages)
	}
	if next.Headers[task.HeaderSeries] != "a" || string(next.Body) != "p" || next.Headers["h"] != "v" {
		t.Errorf("the replayed run is %v with %q", next.Headers, next.Body)
	}
}
