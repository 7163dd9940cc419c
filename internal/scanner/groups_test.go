package scanner

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// join stores a task of topic orders that is due now, in group g. It recurs if r isn't nil.
func (l *lone) join(id string, r *task.Recurrence, amqp *task.AMQP) {
	l.t.Helper()
	body, err := shard.Encode(&task.Task{Payload: []byte("p"), Group: "g", Recurrence: r, AMQP: amqp})
	check.OK(l.t, err)
	e := shard.Entry{ID: id, When: task.Now(), Body: body}
	check.OK(l.t, router.New(l.store).Topic("orders").Schedule(l.t.Context(), []shard.Entry{e})[0].Err)
}

// indexed counts the members of the index of groups.
func (l *lone) indexed() (n int) {
	l.t.Helper()
	for _, part := range l.topic("orders").Index() {
		some, err := part.Next(l.t.Context(), 500)
		check.OK(l.t, err)
		n += len(some)
	}
	return n
}

// TestAMessageNamesItsGroup, whatever kind of task it is of. A delivered task leaves its group,
// and a recurring one with its last run.
func TestAMessageNamesItsGroup(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms")
	messages := l.arrived()
	l.join("plain", nil, nil)
	l.join("intake's", nil, &task.AMQP{RoutingKey: "orders"})
	l.join("recurring", &task.Recurrence{Every: time.Second, Runs: 2, Each: true}, nil)
	for range 3 {
		m := check.Receive(t, "a message", messages)
		check.Equal(t, "group of "+m.MessageId, m.Headers[task.HeaderGroup], any("g"))
	}
	check.Until(t, "two tasks to leave the group", func() bool { return l.indexed() <= 1 })
	m := check.Receive(t, "the second run", messages)
	check.Equal(t, "series", m.Headers[task.HeaderSeries], any("recurring"))
	check.Equal(t, "group of the second run", m.Headers[task.HeaderGroup], any("g"))
	check.Until(t, "the task to end", func() bool { return l.empty() && l.indexed() == 0 })
}

// TestAParkedRunIsInTheGroupOfItsTask, so that CancelGroup removes it.
func TestAParkedRunIsInTheGroupOfItsTask(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": "{shards: 1, exchange: amq.direct, routing_key: nobody, tick: 20ms, " +
		"max_attempts: 1}"}, nil)
	l.start()
	l.join("a", &task.Recurrence{Every: time.Hour}, nil)
	r := router.New(l.store).Topic("orders")
	var page []shard.Stored
	check.Until(t, "a parked run", func() bool {
		var err error
		page, err = r.Group("g").Next(t.Context())
		check.OK(l.t, err)
		return len(page) == 2
	})
	for _, s := range page {
		check.Equal(t, s.ID+": parked", s.State == task.Parked, s.Series == "a")
	}
}

// TestAFleetSweepsTheIndexOfGroups: what a crash left goes. No other sweep begins for a while.
func TestAFleetSweepsTheIndexOfGroups(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": one("tick: 20ms", "paused: true")}, nil)
	topic := l.topic("orders")
	leave := func(group string) {
		t.Helper()
		now, err := topic.Now(t.Context())
		check.OK(l.t, err)
		body, err := shard.Encode(&task.Task{Group: group})
		check.OK(l.t, err)
		m := shard.NewMark(now-time.Hour.Milliseconds()).Set("a", body)
		check.OK(l.t, topic.Join(t.Context(), []shard.Member{m})[0])
	}
	leave("x")
	leave("y")
	l.groups.every = 10 * time.Millisecond
	l.start()
	l.join("b", nil, nil)
	check.Until(t, "the index to be swept", func() bool { return l.indexed() == 1 })
	leave("z")
	mine, err := topic.BeginSweep(t.Context(), time.Hour)
	check.OK(l.t, err)
	check.Equal(t, "another sweep begins", mine, false)
	check.Equal(t, "members", l.indexed(), 2)
}
