package intake

import (
	"context"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestAConsumerKnowsTheTermBeforeItsFirstMessage: it looks again while it waits for the queue. A
// term that it learns once a message may have come doesn't count.
func TestAConsumerKnowsTheTermBeforeItsFirstMessage(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	topic := r.Orders()
	one := tenure{topic: topic}
	check.OK(t, one.begin(t.Context()))
	check.Equal(t, "the term of a new topic", one.before(), 0)
	first, _, err := topic.BeginTerm(t.Context(), 0)
	check.OK(t, err)

	answers := func(context.Context) error { return nil }
	one.look(t.Context(), answers)
	check.Equal(t, "the term after a look", one.before(), first)
	second, _, err := topic.BeginTerm(t.Context(), first)
	check.OK(t, err)
	one.look(t.Context(), func(context.Context) error { return errUnanswered })
	check.Equal(t, "the term if RabbitMQ doesn't answer", one.before(), first)
	one.look(t.Context(), func(context.Context) error { one.received(); return nil })
	check.Equal(t, "the term if a message comes before the answer", one.before(), first)
	one.look(t.Context(), answers)
	check.Equal(t, "the term after a message came", one.before(), first)

	other := tenure{topic: topic}
	check.OK(t, other.begin(t.Context()))
	check.Equal(t, "the term of a consumer that begins now", other.before(), second)
}

// TestAFirstMessageEndsAnUnansweredLook: RabbitMQ's answer is behind messages, and they wait for room
// that the first of them have.
func TestAFirstMessageEndsAnUnansweredLook(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	one := tenure{topic: r.Orders()}
	check.OK(t, one.begin(t.Context()))
	asked, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		one.look(t.Context(), func(ctx context.Context) error {
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	check.Closed(t, "RabbitMQ to be asked", asked)
	one.received()
	check.Closed(t, "the look to end", looked)
}
