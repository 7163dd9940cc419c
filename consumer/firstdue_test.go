package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestTheFirstDueStaysThroughRetries: each attempt, the parked task and its replay know
// when the task was due first, and no handler sees how that is kept.
func TestTheFirstDueStaysThroughRetries(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		var seen log
		c := w.consume(Config{Policy: Fixed(0, 4), Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			return errTest
		}})
		headers := map[string]string{"k": "v"}
		w.request(producer.Request{ID: "a", Headers: headers})
		check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
		first := seen.all()[0].Due
		if p := w.parked()["a"]; !p.FirstDue.Equal(first) || !p.Due.Equal(seen.all()[3].Due) {
			t.Errorf("parked: due %v, first %v, want %v", p.Due, p.FirstDue, first)
		}
		if s, _ := w.stored("a"); !s.FirstDue.Equal(first) || !maps.Equal(s.Headers, headers) {
			t.Errorf("stored: first due %v, want %v, headers %v", s.FirstDue, first, s.Headers)
		}
		_, err := admin.Parked{Topic: w.topic}.Replay(t.Context(), "a")
		check.OK(w.t, err)
		check.Until(t, "the replay has failed", func() bool { return counted(c, retried) > 3 })
		check.Until(t, "the replay's retry is handled", func() bool { return seen.of("a") > 5 })
		for i, d := range seen.all() {
			if !d.FirstDue.Equal(first) || !maps.Equal(d.Headers, headers) || i < 4 && (i == 0) != d.Due.Equal(first) {
				t.Errorf("delivery %d: due %v, first %v, want %v, headers %v", i, d.Due, d.FirstDue, first, d.Headers)
			}
		}
		c.stop()
	})
}

// TestWhatBeginsAgainHasAnotherFirstDue: of a task that was retried before.
func TestWhatBeginsAgainHasAnotherFirstDue(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		retry   time.Duration
		outside func(w *fixture)                                           // while the retry waits
		handler func(w *fixture, d task.Delivery, attempt int) (err error) // in place of failing
	}{
		"a reschedule": {never, func(w *fixture) {
			_, err := w.producer.Reschedule(w.t.Context(), orders, "a", producer.Now())
			check.OK(w.t, err)
		}, nil},
		"another schedule": {never, func(w *fixture) { w.schedule("a", "new") }, nil},
		"a next step of a retry": {0, nil, func(_ *fixture, d task.Delivery, attempt int) error {
			if attempt == 1 {
				return errTest
			}
			return d.NextWhen(task.Now(), []byte("new"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t).serve()
			var seen log
			c := w.consume(Config{Policy: Fixed(row.retry, 100), Handler: func(_ context.Context, d task.Delivery) error {
				seen.add(d)
				attempt := seen.of("a")
				switch {
				case row.handler == nil && attempt == 1:
					return errTest
				case row.handler != nil && (attempt == 1 || row.retry == 0 && attempt == 2):
					return row.handler(w, d, attempt)
				}
				return nil
			}})
			w.schedule("a", "")
			check.Until(t, "it has failed", func() bool { return counted(c, retried) == 1 })
			if row.outside != nil {
				if s, _ := w.stored("a"); !s.FirstDue.Equal(seen.all()[0].Due) {
					t.Errorf("the retry's first due is %v, want %v", s.FirstDue, seen.all()[0].Due)
				}
				row.outside(w)
			}
			last := 2
			if row.retry == 0 {
				last = 3
			}
			check.Until(t, "it is handled as what began again", func() bool { return seen.of("a") == last })
			for i, d := range seen.all() {
				if again := i == 0 || i == last-1; again != d.FirstDue.Equal(d.Due) || d.FirstDue.After(d.Due) {
					t.Errorf("delivery %d is due %v, first %v", i, d.Due, d.FirstDue)
				}
			}
		})
	}
}

// TestAChangeOfShardsKeepsTheFirstDue: retries keep it, and most of them move.
func TestAChangeOfShardsKeepsTheFirstDue(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	const tasks = 20
	var seen log
	c := w.consume(Config{Policy: Fixed(never, 3), Handler: func(_ context.Context, d task.Delivery) error {
		seen.add(d)
		return errTest
	}})
	for i := range tasks {
		w.schedule(fmt.Sprint(i), "")
	}
	check.Until(t, "all wait for their retries", func() bool { return counted(c, retried) == tasks })
	w.reshard(7)
	check.Until(t, "the change is over", func() bool {
		p, err := w.topic.Placement(t.Context())
		check.OK(w.t, err)
		return p.Shards == 7 && p.Phase == shard.Stable
	})
	for _, d := range seen.all() {
		if s, there := w.stored(d.ID); !there || !s.FirstDue.Equal(d.Due) || !s.Due.After(d.Due) {
			t.Errorf("%s: stored %v, due %v, first %v, want %v", d.ID, there, s.Due, s.FirstDue, d.Due)
		}
	}
}

// TestParseReadsTheFirstDue: from the header, or from the mark, which a scanner that
// doesn't know the header passes on alone.
func TestParseReadsTheFirstDue(t *testing.T) {
	t.Parallel()
	const due, first = 1796119200000, 1796119100000
	for name, row := range map[string]struct {
		header any
		mark   string
		want   int64
	}{
		"never retried":              {nil, "", due},
		"a next step":                {nil, "1", due},
		"the header":                 {int64(first), "1 1796119100001 1796119200000", first},
		"the mark alone":             {nil, "1 1796119100000 1796119200000", first},
		"the mark of another due":    {nil, "1 1796119100000 1796119200001", due},
		"a mark that is none":        {nil, "1 soon 1796119200000", due},
		"a mark with the attempts":   {nil, "1 1796119100000 1796119200000 2", first},
		"a mark with more than that": {nil, "1 1796119100000 1796119200000 2 3", due},
	} {
		p := message(func(p *amqp.Publishing) {
			if row.header != nil {
				p.Headers["x-duefleet-first-due"] = row.header
			}
			if row.mark != "" {
				p.Headers["duefleet-next"] = row.mark
			}
		})
		got, err := Parse(amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId})
		if err != nil || got.FirstDue.UnixMilli() != row.want || len(got.Headers) != 0 {
			t.Errorf("%s: first due %v, want %d, headers %v, error %v", name, got.FirstDue, row.want, got.Headers, err)
		}
	}
	p := message(func(p *amqp.Publishing) { p.Headers["x-duefleet-first-due"] = "soon" })
	var header *HeaderError
	_, err := Parse(amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId})
	if !errors.As(err, &header) || header.Header != "x-duefleet-first-due" {
		t.Errorf("a text in the place of a time: %v", err)
	}
}
