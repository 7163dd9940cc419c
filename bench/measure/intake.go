package measure

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	bareConsumer      = "raw: bare consumer, an ack for every 500 messages"
	messagesPerSecond = "messages/s"
	missing           = "missing"
)

func intake() Measure {
	return Measure{
		Name: "intake", Title: "100,000 messages that wait in the intake's queue, one scanner",
		Takes: 11 * time.Second, Once: true,
		Goals: []report.Goal{
			{Subject: oneScanner, Name: messagesPerSecond, Over: bareConsumer, AtLeast: 0.8},
			{Subject: oneScanner, Name: missing, None: true},
		},
		Notes: []string{
			"Both take the same messages, due in an hour, from a quorum queue with a single active consumer, 1,000 " +
				"unacknowledged at most. The bare consumer uses amqp091-go and stores nothing",
			"The time runs from the first message to the last. A message counts for the scanner when Redis has it",
			"missing: messages that weren't in Redis at the end",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(100_000)
			if err := takenBare(ctx, r, s, n); err != nil {
				return err
			}
			return takenIn(ctx, r, s, n)
		},
	}
}

func takenBare(ctx context.Context, r *harness.Run, s *Results, n int) error {
	rate, err := r.TakeBare(ctx, n)
	if err != nil {
		return err
	}
	s.Add(bareConsumer, messagesPerSecond, rate)
	return nil
}

func takenIn(ctx context.Context, r *harness.Run, s *Results, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	f, queue, err := r.StartIntake(ctx)
	if err != nil {
		return err
	}
	used := meters{broker(r), redisMain(r)}
	rate, lost, err := f.TakeIn(ctx, queue, n, func() error { return used.start(ctx) })
	if err != nil {
		return err
	}
	if err := used.stop(ctx); err != nil {
		return err
	}
	s.Add(oneScanner, messagesPerSecond, rate)
	used.add(s, oneScanner, n)
	s.Add(oneScanner, missing, float64(lost))
	return f.Stop()
}
