package console

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
)

const (
	// askQueuesEvery is the pause between two questions to RabbitMQ about the same queues, while
	// somebody looks at them.
	askQueuesEvery = 5 * time.Second
	// askQueuesLimit limits one question. A broker that is silent takes 5 s of it.
	askQueuesLimit = 12 * time.Second
	// maxDepths is how many answers are kept.
	maxDepths = 100
)

// depths asks RabbitMQ about the queues of topics, for everybody who looks. Its methods are
// safe for concurrent use.
type depths struct {
	ask   func(ctx context.Context, names []string) ([]doctor.Queue, error) // nil: nobody can be asked
	begin chan<- func(context.Context)                                      // to have Run call them

	mu   sync.Mutex
	kept map[string]*depth // by the names of the queues
}

// depth is the newest answer about some queues.
type depth struct {
	// At is when RabbitMQ answered; zero if it never did. Queues is that answer.
	At     time.Time
	Queues []doctor.Queue
	// Failure is why the newest question has no answer; "" if it has one.
	Failure string

	asking bool
	tried  time.Time
}

// queuesView has what a topic's page shows about queues.
type queuesView struct {
	depth
	// Rows has a queue in each row, whether RabbitMQ has answered or not.
	Rows []queueRow
	// Asked is false if the console can't ask RabbitMQ.
	Asked bool
}

// queueRow is one queue.
type queueRow struct {
	Name string
	// Kind says why the topic has the queue; "" if it is the topic's own.
	Kind                string
	Messages, Consumers int64
	// Known is true if RabbitMQ said the numbers. Why is its refusal; "" if there is none.
	Known bool
	Why   string
}

// of returns the newest answer about queues, and asks again if it is too old. It waits for
// nothing.
func (d *depths) of(names []string) depth {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join(names, "\x00")
	one := d.kept[key]
	if one == nil {
		d.forget()
		one = &depth{}
		d.kept[key] = one
	}
	if !one.asking && time.Since(one.tried) >= askQueuesEvery {
		select {
		case d.begin <- func(ctx context.Context) { d.update(ctx, one, names) }:
			one.asking = true
		default: // the next reading asks
		}
	}
	return *one
}

// forget makes room for one more answer. The caller holds mu.
func (d *depths) forget() {
	for key, old := range d.kept {
		if len(d.kept) >= maxDepths && !old.asking {
			delete(d.kept, key)
		}
	}
}

// update asks RabbitMQ once.
func (d *depths) update(ctx context.Context, one *depth, names []string) {
	ctx, cancel := context.WithTimeout(ctx, askQueuesLimit)
	defer cancel()
	queues, err := d.ask(ctx, names)
	d.mu.Lock()
	defer d.mu.Unlock()
	one.asking, one.tried, one.Failure = false, time.Now(), ""
	if ctx.Err() != nil {
		one.Failure = "no answer within " + askQueuesLimit.String()
		return
	}
	if err != nil {
		one.Failure = err.Error()
		return
	}
	one.At, one.Queues = one.tried, queues
}

// view returns what the page of a topic with this document shows; nil if it names no queue.
func (d *depths) view(t config.Topic) *queuesView {
	v := queuesView{Asked: d.ask != nil}
	switch {
	case t.Declare != nil && t.Declare.DeadLetter != "":
		v.Rows = []queueRow{{Name: t.Declare.Queue}, {Name: t.Declare.DeadLetter, Kind: "dead letters"}}
	case t.Declare != nil:
		v.Rows = []queueRow{{Name: t.Declare.Queue}}
	case t.Exchange == "": // AMQP's default exchange sends to the queue with that name
		v.Rows = []queueRow{{Name: t.RoutingKey}}
	default:
		return nil
	}
	if !v.Asked {
		return &v
	}
	var names []string
	for _, row := range v.Rows {
		names = append(names, row.Name)
	}
	v.depth = d.of(names)
	for i := range v.Rows {
		row := &v.Rows[i]
		if v.At.IsZero() {
			continue
		}
		q := v.Queues[i]
		row.Messages, row.Consumers = int64(q.Messages), int64(q.Consumers)
		row.Known, row.Why = q.Why == "", q.Why
	}
	return &v
}
