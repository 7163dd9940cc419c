package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	bareOne   = "raw: bare confirmed publisher"
	bareThree = "raw: three of them at a time"
	perSecond = "tasks/s"
)

func drain(queueType string) Measure {
	return Measure{
		Name: "drain-" + queueType, Title: "200,000 due tasks into a durable " + queueType + " queue",
		Goals: []report.Goal{{Subject: duefleet, Name: perSecond, Over: bareOne, AtLeast: 0.9}, {Subject: duefleet, Name: "faults", None: true}},
		Notes: []string{
			"From the due time, which is the same for all, to the last task confirmed by RabbitMQ and removed from Redis",
			"The bare publisher sends the same messages to a queue of the same kind with amqp091-go and 2,000 unconfirmed, and stores nothing",
			"faults: messages in the queue more or fewer than tasks",
			"CPU is that of the whole process for each task; the bare publishers share this one with the harness",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(200_000)
			if err := bare(ctx, r, s, queueType, n); err != nil {
				return err
			}
			f, err := r.StartFleet(ctx, harness.FleetConfig{QueueType: queueType})
			if err != nil {
				return err
			}
			return drained(ctx, r, f, s, n)
		},
	}
}

func bare(ctx context.Context, r *harness.Run, s *Results, queueType string, n int) error {
	for _, b := range []struct {
		subject     string
		connections int
	}{{bareOne, 1}, {bareThree, 3}} {
		broker := meter{pids: []int{r.RabbitMQPID()}}
		if err := broker.start(); err != nil {
			return err
		}
		rate, err := r.Bare(ctx, queueType, n, b.connections)
		if err != nil {
			return fmt.Errorf("%s: %w", b.subject, err)
		}
		s.Add(b.subject, perSecond, rate)
		if err := broker.add(s, b.subject, "RabbitMQ µs/task", n); err != nil {
			return err
		}
	}
	return nil
}

// drained lets the fleet deliver n tasks at one instant and adds what it took.
func drained(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	broker, scanners := meter{pids: []int{r.RabbitMQPID()}}, meter{pids: f.PIDs()}
	var before time.Duration
	rate, err := f.Drain(ctx, harness.Backlog{Tasks: n, AtDue: func() (err error) {
		if err := broker.start(); err != nil {
			return err
		}
		if err := scanners.start(); err != nil {
			return err
		}
		before, err = r.Redis.CPU(ctx)
		return err
	}})
	if err != nil {
		return err
	}
	after, err := r.Redis.CPU(ctx)
	if err != nil {
		return err
	}
	s.Add(duefleet, perSecond, rate)
	if err := broker.add(s, duefleet, "RabbitMQ µs/task", n); err != nil {
		return err
	}
	if err := scanners.add(s, duefleet, "scanners µs/task", n); err != nil {
		return err
	}
	s.Add(duefleet, "Redis µs/task", micros(after-before, n))
	queued, err := r.AwaitQueued(ctx, f.Queue, n)
	s.Add(duefleet, "faults", float64(max(queued-n, n-queued)))
	return err
}

// meter is the processor time of some processes over a while.
type meter struct {
	pids   []int
	before time.Duration
}

func (m *meter) start() (err error) {
	m.before, err = harness.ProcessesCPU(m.pids...)
	return err
}

func (m *meter) add(s *Results, subject, name string, tasks int) error {
	after, err := harness.ProcessesCPU(m.pids...)
	if err != nil {
		return err
	}
	s.Add(subject, name, micros(after-m.before, tasks))
	return nil
}

// micros is the µs of each task.
func micros(d time.Duration, tasks int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(tasks)
}
