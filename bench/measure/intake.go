package measure

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	bareConsumer      = "raw: bare consumer, an ack for every 500 messages"
	messagesPerSecond = "messages/s"
	wrongTasks        = "wrong"
)

// intake measures how fast one scanner takes messages in that schedule tasks.
func intake() Measure {
	return intakeOf(harness.Schedules, 100_000, 0.8, Measure{
		Name: "intake", Title: "100,000 messages that wait in the intake's queue, one scanner",
		Notes: []string{
			"Both take the same messages, due in an hour, from a quorum queue with a single active consumer, 1,000 " +
				"unacknowledged at most. The bare consumer uses amqp091-go and stores nothing",
			"The time runs from the first message to the last. A message counts for the scanner when Redis has it",
			"wrong: tasks that Redis has too many or too few at the end",
		},
	})
}

// intakeMixed is intake for all verbs.
func intakeMixed() Measure {
	return intakeOf(harness.Mixed, 40_000, 0.5, Measure{
		Name: "intake-mixed", Title: "120,000 messages that schedule, move and cancel, one scanner",
		Notes: []string{
			"The messages schedule 40,000 tasks, move each and cancel each. The three verbs alternate, and 1,500 messages lie " +
				"between two of one ID",
			"The time for the scanner ends when the last task is cancelled",
		},
	})
}

func intakeOf(traffic func(n int) harness.Traffic, n int, ratio float64, m Measure) Measure {
	m.Takes, m.Once = 11*time.Second, true
	m.Goals = []report.Goal{
		{Subject: oneScanner, Name: messagesPerSecond, Over: bareConsumer, AtLeast: ratio},
		{Subject: oneScanner, Name: wrongTasks, None: true},
	}
	m.Run = func(ctx context.Context, r *harness.Run, s *Results) error {
		t := traffic(r.Size(n))
		if err := takenBare(ctx, r, s, t); err != nil {
			return err
		}
		return takenIn(ctx, r, s, t)
	}
	return m
}

func takenBare(ctx context.Context, r *harness.Run, s *Results, t harness.Traffic) error {
	queue, err := r.BareIntake(ctx, t)
	if err != nil {
		return err
	}
	rate, err := r.TakeBare(ctx, queue, t.Count)
	if err != nil {
		return err
	}
	s.Add(bareConsumer, messagesPerSecond, rate)
	return r.DeleteQueue(queue)
}

func takenIn(ctx context.Context, r *harness.Run, s *Results, t harness.Traffic) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	f, queue, err := r.StartIntake(ctx)
	if err != nil {
		return err
	}
	used := meters{broker(r), redisMain(r)}
	rate, wrong, err := f.TakeIn(ctx, queue, t, func() error { return used.start(ctx) })
	if err != nil {
		return err
	}
	if err := used.stop(ctx); err != nil {
		return err
	}
	cpu, err := harness.ProcessesCPU(f.PIDs()...)
	if err != nil {
		return err
	}
	used = append(used, &meter{name: scannersCost, used: cpu}) // since it was started
	s.Add(oneScanner, messagesPerSecond, rate)
	used.add(s, oneScanner, t.Count)
	s.Add(oneScanner, wrongTasks, float64(wrong))
	return f.Stop()
}

// intakeMemory measures a scanner's memory when small messages have let RabbitMQ send many at
// once, and large ones follow.
func intakeMemory() Measure {
	const small, large, bytes = 5000, 1500, 250 << 10
	const others = "raw: one scanner, the small messages alone"
	return Measure{
		Name: "intake-memory", Title: "5,000 messages of 200 bytes, then 1,500 of 250 KiB, one scanner",
		Takes: 11 * time.Second, Once: true,
		// 64 MiB of messages by default, and 60 MiB for all else.
		Goals: []report.Goal{
			{Subject: oneScanner, Name: scannerMB, AtMost: 130},
			{Subject: oneScanner, Name: wrongTasks, None: true},
		},
		Notes: []string{"MB: the most resident memory. All messages wait in the queue before the scanner starts, and take " +
			"384 MB"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := mostMemory(ctx, r, s, others, harness.Schedules(r.Size(small))); err != nil {
				return err
			}
			return mostMemory(ctx, r, s, oneScanner, harness.Growing(r.Size(small), r.Size(large), bytes))
		},
	}
}

func mostMemory(ctx context.Context, r *harness.Run, s *Results, subject string, t harness.Traffic) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	f, queue, err := r.StartIntake(ctx)
	if err != nil {
		return err
	}
	rate, wrong, err := f.TakeIn(ctx, queue, t, nil)
	if err != nil {
		return err
	}
	peak, err := harness.PeakRSS(f.PIDs()[0])
	if err != nil {
		return err
	}
	s.Add(subject, scannerMB, float64(peak)/1e6)
	s.Add(subject, messagesPerSecond, rate)
	s.Add(subject, wrongTasks, float64(wrong))
	return f.Stop()
}

const (
	rawBeside = "raw: publish to consume, next to a bare consumer"
	takenRate = "taken in/s"
)

// intakeLateness measures lateness while an intake of the same topic has more messages
// than it can take in.
func intakeLateness() Measure {
	load := harness.Load{Rate: 500, For: 3 * time.Second, From: 200 * time.Millisecond, To: time.Second}
	return Measure{
		Name: "intake-lateness", Title: "Poisson 500/s, delays 0.2 to 1 s, next to an intake at full speed",
		Takes: 35 * time.Second, Once: true, Goals: complete(oneScanner),
		Notes: []string{
			"One scanner delivers the tasks and takes in messages of the same topic, due in an hour, from a queue that is " +
				"never empty meanwhile. The machine has no idle time",
			"The bare consumer takes the same messages, next to publish to consume",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			t := harness.Schedules(r.Size(400_000))
			if err := bareBeside(ctx, r, load, t, s); err != nil {
				return err
			}
			return intakeBeside(ctx, r, load, t, s)
		},
	}
}

func bareBeside(ctx context.Context, r *harness.Run, load harness.Load, t harness.Traffic, s *Results) error {
	queue, err := r.BareIntake(ctx, t)
	if err != nil {
		return err
	}
	taking, stop := context.WithCancel(ctx)
	taken := make(chan error, 1)
	go func() {
		_, err := r.TakeBare(taking, queue, t.Count)
		if taking.Err() != nil {
			err = nil // it was stopped
		}
		taken <- err
	}()
	err = directLateness(harness.Classic, rawBeside)(ctx, r, load, s)
	left, countErr := r.Queued(queue)
	stop()
	noteEmpty(s, rawBeside, left)
	return errors.Join(err, countErr, <-taken, r.DeleteQueue(queue))
}

func intakeBeside(ctx context.Context, r *harness.Run, load harness.Load, t harness.Traffic, s *Results) error {
	f, queue, err := r.StartIntake(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(r.FillIntake(ctx, queue, t), f.Start(ctx)); err != nil {
		return err
	}
	began := time.Now()
	err = fleetTrial(r, f, oneScanner).run(ctx, r, load, s)
	took := time.Since(began)
	left, countErr := r.Queued(queue)
	noteEmpty(s, oneScanner, left)
	s.Add(oneScanner, takenRate, float64(t.Count-left)/took.Seconds())
	return errors.Join(err, countErr, f.Stop())
}

// noteEmpty says that the queue was empty before the load ended.
func noteEmpty(s *Results, subject string, left int) {
	if left == 0 {
		s.Note(subject + ": the intake's queue was empty before the load ended, so its figures are too good")
	}
}
