package consumer

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// next returns the next message of the queue, for the caller to answer.
func (w *fixture) next(channel *amqp.Channel) (d amqp.Delivery) {
	w.t.Helper()
	check.Until(w.t, "a message", func() (there bool) {
		var err error
		d, there, err = channel.Get(queue, false)
		check.OK(w.t, err)
		return there
	})
	return d
}

// TestHandleOnAChannelOfTheCaller: a program that has a channel of its own gets the same
// outcomes, and its broker the same answers, as with Run.
func TestHandleOnAChannelOfTheCaller(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	own := servertest.Channel(t, w.settings.RabbitMQURL)
	next := func() amqp.Delivery { return w.next(own) }
	brief, end := context.WithCancel(t.Context())
	handler := func(ctx context.Context, d task.Delivery) error {
		switch d.ID {
		case "fails":
			return errTest
		case "hangs":
			end()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	c, err := New(w.configure(Config{Policy: Fixed(time.Hour, 5), Handler: handler}))
	check.OK(w.t, err)
	handled := func(ctx context.Context, id, want string) {
		t.Helper()
		w.schedule(id, "x")
		if got := c.Handle(ctx, next()); got != want {
			t.Errorf("%s: got outcome %s, want %s", id, got, want)
		}
	}
	handled(t.Context(), "works", "done")
	handled(t.Context(), "fails", "retried")
	if s, _ := w.stored("fails"); s.Attempt != 2 || s.State != task.Waiting {
		t.Errorf("got %+v, want a task that waits for its second attempt", s)
	}
	handled(brief, "hangs", "requeued")
	if d := next(); d.MessageId != "hangs" || !d.Redelivered {
		t.Errorf("got %s, redelivered %v; want the delivery that was cut short", d.MessageId, d.Redelivered)
	} else {
		check.OK(w.t, d.Ack(false))
	}
	w.send(amqp.Publishing{MessageId: "foreign"})
	if got := c.Handle(t.Context(), next()); got != "rejected" {
		t.Errorf("a message that isn't a task: got outcome %s", got)
	}
	check.OK(w.t, own.Close())
	if n := w.waiting(queue); n != 0 {
		t.Errorf("%d messages were not answered", n)
	}
	check.Until(t, "the rejected message", func() bool { return w.waiting("dead") == 1 })
}

// TestHandleKnowsRedissClock: a retry is due by Redis's clock, whatever a call before
// estimated.
func TestHandleKnowsRedissClock(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	_, err := w.topic.Ensure(t.Context(), 1)
	check.OK(w.t, err)
	c, err := New(w.configure(Config{Policy: Fixed(time.Hour, 5),
		Handler: func(context.Context, task.Delivery) error { return errTest }}))
	check.OK(w.t, err)
	w.request(producer.Request{ID: "o-1"})
	b, err := w.topic.Shard(0).Claim(t.Context(), shardClaim())
	check.OK(w.t, err)
	_, err = w.topic.Shard(0).Settle(t.Context(), leaseOf(b))
	check.OK(w.t, err)
	c.store.Scripts().AssumeTime(b.Now.Add(24 * time.Hour).UnixMilli())
	w.publish(b.Tasks[0].Task)
	if got := c.Handle(t.Context(), w.next(w.channel)); got != "retried" {
		t.Fatalf("got outcome %s", got)
	}
	s, _ := w.stored("o-1")
	if wait := s.NextAttempt.Sub(b.Now); wait < time.Hour-time.Millisecond || wait > 2*time.Hour {
		t.Errorf("the retry is due %s, want an hour after %s", s.NextAttempt, b.Now)
	}
}
