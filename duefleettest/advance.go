package duefleettest

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Outcome of a delivery, as the metric duefleet_consumer_deliveries_total names it.
type Outcome string

// The outcomes that a handler causes.
const (
	// Done: the handler returned nil.
	Done Outcome = "done"
	// Retried: the handler failed, and the task waits for its next attempt.
	Retried Outcome = "retried"
	// Postponed: the handler returned consumer.Later.
	Postponed Outcome = "postponed"
	// Parked: the last attempt failed, or the handler returned consumer.Park.
	Parked Outcome = "parked"
	// Dropped: the handler returned consumer.Drop.
	Dropped Outcome = "dropped"
	// Superseded: the handler failed, and the task was cancelled or replaced meanwhile.
	Superseded Outcome = "superseded"
)

// Delivery is one delivery that Advance made.
type Delivery struct {
	Topic string
	// ID of the task; of a run of a recurring task, task.RunID.
	ID string
	// Due is when the task was due. The clock stood at this time while the handler ran.
	Due time.Time
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Outcome of the delivery.
	Outcome Outcome
	// Err is the handler's error. After a panic it is an error with the panic's value.
	Err error
}

// Limits of what handlers schedule without end.
const (
	// most is the default of Config.MaxDeliveries.
	most = 10_000
	// repeats limits the deliveries of one ID in a row, each scheduled in the millisecond of
	// the one before.
	repeats = 100
)

// Advance moves the clock by d. It delivers what becomes due on the way, in the order of
// the due times, and what handlers schedule for the time until then. It returns the
// deliveries. Advance(0) delivers what is due now.
//
// If an ID is scheduled again in the millisecond of its last delivery, it is delivered a
// millisecond later.
//
// Advance calls t.Fatalf if d is negative, and if a handler calls it. It also does if
// handlers schedule tasks without end (Config.MaxDeliveries), and if a handler doesn't
// return after its context ended (Timeout in Config.Consumer).
func (f *Fleet) Advance(d time.Duration) []Delivery {
	f.t.Helper()
	if d < 0 {
		f.t.Fatalf("duefleettest: Advance(%s): the clock moves forward only", d)
	}
	if f.busy {
		f.t.Fatalf("duefleettest: Advance was called while it calls a handler")
	}
	f.busy = true
	defer func() { f.busy = false }()
	var all []Delivery
	began := f.Now()
	until := began.Add(d)
	for {
		topic, next, err := f.next()
		if err != nil {
			f.t.Fatalf("duefleettest: %v", err)
		}
		if topic == nil || next.After(until) {
			break
		}
		f.moveTo(next)
		if len(all) >= f.cfg.MaxDeliveries {
			last := all[len(all)-1]
			f.t.Fatalf("duefleettest: Advance(%s) made %d deliveries in %s, the last of topic %s, ID %q: does a handler "+
				"schedule for a time that has passed? If not, raise Config.MaxDeliveries", d, len(all), f.Now().Sub(began),
				last.Topic, last.ID)
		}
		made, err := f.deliver(topic)
		if err != nil {
			f.t.Fatalf("duefleettest: %v", err)
		}
		all = append(all, made...)
	}
	f.moveTo(until)
	return all
}

// next returns the topic that has a task due first, and when it is due; nil if no task
// waits.
func (f *Fleet) next() (first *shard.Topic, at time.Time, err error) {
	for _, name := range f.cfg.Topics {
		topic := f.store.Topic(name)
		look := topic.Attention(f.t.Context(), 0)[0]
		if look.Err != nil {
			return nil, at, look.Err
		}
		if !look.Next.IsZero() && (first == nil || look.Next.Before(at)) {
			first, at = topic, look.Next.UTC()
		}
	}
	return first, at, nil
}

// lease of a claim. The task is settled before the clock moves.
const lease = 30 * time.Second

// deliver claims one due task of a topic as a scanner does, and settles it as after the
// broker's confirm. Then it passes the message to the consumer. It returns the delivery.
func (f *Fleet) deliver(topic *shard.Topic) (made []Delivery, err error) {
	f.requests++
	ctx, place := f.t.Context(), topic.Shard(0)
	batch, err := place.Claim(ctx, shard.Claim{Claimant: "duefleettest", Request: strconv.Itoa(f.requests), Limit: 1,
		Lease: lease})
	if err != nil {
		return nil, err
	}
	if len(batch.Bad) > 0 {
		bad := batch.Bad[0]
		return nil, fmt.Errorf("topic %s, ID %q: %w", topic.Name(), bad.ID, bad.Err)
	}
	for _, claimed := range batch.Tasks {
		if err := f.settle(ctx, place, &claimed); err != nil {
			return nil, err
		}
		t := shard.RunOf(claimed.Task)
		if n := f.later(&t); n > repeats {
			return nil, fmt.Errorf("topic %s, ID %q: each of %d deliveries scheduled the next for now, without end",
				t.Topic, t.ID, n)
		}
		outcome, err := f.handle(t)
		if err != nil {
			return nil, fmt.Errorf("topic %s, ID %q: %w", t.Topic, t.ID, err)
		}
		made = append(made, Delivery{Topic: t.Topic, ID: t.ID, Due: t.Due.UTC(), Attempt: t.Attempt, Outcome: outcome,
			Err: f.handled})
	}
	return made, nil
}

// settle settles a claimed task, or makes the next run of a recurring one due.
func (f *Fleet) settle(ctx context.Context, place shard.Shard, claimed *shard.Claimed) (err error) {
	if claimed.Recurrence != nil {
		_, err = place.Advance(ctx, []shard.Advance{claimed.Advance(f.Now())})
	} else {
		_, err = place.Settle(ctx, []shard.Lease{{ID: claimed.ID, Token: claimed.Token}})
	}
	return err
}

// grace is how long a delivery may take after the timeouts of its handler and of OnParked.
const grace = 5 * time.Second

// handle passes a task to the consumer, in a goroutine of its own: so a handler that never
// returns ends the test.
func (f *Fleet) handle(t task.Task) (Outcome, error) {
	f.handled = nil
	ended := make(chan struct{})
	var outcome Outcome
	go func() {
		defer close(ended)
		outcome = Outcome(f.consumer.Handle(f.t.Context(), message(t)))
	}()
	hung := time.NewTimer(2*f.timeout + grace)
	defer hung.Stop()
	select {
	case <-ended:
	case <-hung.C:
		return "", fmt.Errorf("the handler hasn't returned %s after its context ended; Config.Consumer.Timeout is %s",
			f.timeout+grace, f.timeout)
	}
	switch outcome {
	case Done, Retried, Postponed, Parked, Dropped, Superseded:
		return outcome, nil
	case "": // the handler ended its goroutine, as t.FailNow and t.SkipNow do
		runtime.Goexit()
	}
	return "", fmt.Errorf("the delivery was %s", outcome)
}

// latest is the last delivery of an ID.
type latest struct {
	due   time.Time
	again int // deliveries before it in a row, each in the millisecond of its predecessor
}

// later makes t due a millisecond later, if the last delivery of its ID was due when t is.
// A consumer would take t for a repeat, because it tells deliveries apart by their due.
// This clock stands still while a handler works, so that is common here. later returns how
// many deliveries in a row it made later.
func (f *Fleet) later(t *task.Task) (again int) {
	name := [2]string{t.Topic, t.ID}
	before, there := f.last[name]
	if there && !t.Due.After(before.due) {
		again = before.again + 1
		if t.FirstDue.Equal(t.Due) {
			t.FirstDue = before.due.Add(time.Millisecond)
		}
		t.Due = before.due.Add(time.Millisecond)
		f.moveTo(t.Due)
	}
	f.last[name] = latest{t.Due, again}
	return again
}

// message returns the delivery that RabbitMQ makes of a scanner's message.
func message(t task.Task) amqp.Delivery {
	p := forward.Publishing(t)
	return amqp.Delivery{
		Acknowledger: answers{}, DeliveryTag: 1, ConsumerTag: "duefleettest", RoutingKey: t.Topic,
		Headers: p.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration,
		MessageId: p.MessageId, Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserId, AppId: p.AppId, Body: p.Body,
	}
}

// answers takes the acks of deliveries, which no broker waits for. Handle returns the
// outcome.
type answers struct{}

// Ack takes an ack.
func (answers) Ack(uint64, bool) error { return nil }

// Nack takes a nack.
func (answers) Nack(uint64, bool, bool) error { return nil }

// Reject takes a rejection.
func (answers) Reject(uint64, bool) error { return nil }
