package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/peers"
)

// system is a running duefleet or peer.
type system interface {
	harness.Scheduler
	PIDs() []int
	Stop() error
}

func peersMeasure() Measure {
	return Measure{
		Name: "peers", Title: "duefleet and its peers: idle, with 5,000 due tasks, and under Poisson 1,000/s with delays " +
			"of 0.2 to 5 s", Takes: 310 * time.Second, Once: true,
		Notes: []string{
			"The section Peers says how each is set up. A peer may be too slow for the load. Its p50 and p99 then count only " +
				"messages that arrived within 8 s after the last due time",
			"Idle: % of one core, all members together, and Redis's main thread, which not all of them use",
			"tasks/s: from the due time to the last arrival, into a durable classic queue that is consumed. If a peer is " +
				"slower, only messages that arrived within 8 s count",
			"bytes/task: growth by 20,000 pending tasks of 200 bytes. It is the growth of Redis's data, of beanstalkd's " +
				"resident memory, or of PostgreSQL's tables and indexes",
			"RabbitMQ's messages wait in a queue of one delay, because an expired message waits behind one that has not " +
				"expired. Other delays need other queues",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			if err := eachSystem(ctx, r, s, func(sys system, subject, queue string) error {
				return measureSystem(ctx, r, sys, queue, s, subject)
			}); err != nil {
				return err
			}
			return fixedDelay(ctx, r, r.Load(peersLoad()), s)
		},
	}
}

func peersLoad() harness.Load {
	return harness.Load{Rate: 1000, For: 5 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
}

// slow is how long a measurement waits for a peer after the last due time. Some peers
// look for due tasks only every 5 s. A peer that needs more than slow is too slow for the
// load.
const slow = 8 * time.Second

// measureSystem runs all measurements for one system.
func measureSystem(ctx context.Context, r *harness.Run, sys system, queue string, s *Results, subject string) error {
	if err := harness.Sleep(ctx, r.Span(settling)); err != nil {
		return err
	}
	if err := resting(ctx, r, s, subject, sys.PIDs(), 3*time.Second); err != nil {
		return err
	}
	if err := warm(ctx, r, sys, queue); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := drainedArrivals(ctx, r, sys, queue, s, subject, r.Size(5000)); err != nil {
		return err
	}
	// A slow peer may still have tasks from before. Their lower numbers distinguish them
	// from the load's.
	load := r.Load(peersLoad())
	load.First = 1_000_000
	t := trial{subject: subject, system: sys, queue: queue, patience: r.Span(slow)}
	if err := t.offer(ctx, r, load, s); err != nil {
		return err
	}
	of := r.Redis.Data
	if p, ok := sys.(*peers.Running); ok {
		of = p.Memory
	}
	return grown(ctx, s, subject, sys.Schedule, of, r.Size(20_000), harness.PayloadSize)
}

// eachSystem measures duefleet and then every peer, each with an empty Redis and its own
// queue. If a peer fails or can't be measured here, that becomes a note, and the others
// are still measured.
func eachSystem(ctx context.Context, r *harness.Run, s *Results, measure func(sys system, subject,
	queue string) error) error {
	f, err := r.StartFleet(ctx, harness.FleetConfig{})
	if err != nil {
		return err
	}
	if err := errors.Join(measure(f, duefleet, f.Queue), f.Stop()); err != nil {
		return err
	}
	for _, p := range peers.All() {
		if err := p.Missing(); err != nil {
			s.Note(fmt.Sprintf("%s: not measured: %v", p.Name, err))
			continue
		}
		if err := onePeer(ctx, r, p, measure); err != nil {
			s.Note(fmt.Sprintf("%s: not measured in full: %v", p.Name, err))
		}
	}
	return ctx.Err()
}

// onePeer measures one peer with an empty Redis.
func onePeer(ctx context.Context, r *harness.Run, p peers.Peer, measure func(system, string, string) error) error {
	if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	queue, err := r.Queue("peer", harness.Classic)
	if err != nil {
		return err
	}
	run, err := p.Start(ctx, r, queue)
	if err != nil {
		return err
	}
	return errors.Join(measure(run, p.Name, queue), run.Stop(), r.DeleteQueue(queue))
}

// drainedArrivals counts at the consumer, since not every peer reports how many tasks it
// still has.
func drainedArrivals(ctx context.Context, r *harness.Run, sys system, queue string, s *Results, subject string,
	n int) error {
	const perTask = 500 * time.Microsecond
	arrivals, stop, err := r.Consume(ctx, queue)
	if err != nil {
		return err
	}
	defer stop()
	due := time.Now().Add(2*time.Second + time.Duration(n)*perTask).Truncate(time.Second)
	if err := harness.Fill(ctx, sys, warmUp, warmUp+n, due); err != nil {
		return err
	}
	if time.Now().After(due) {
		s.Note(fmt.Sprintf("%s: not measured: %v", subject, harness.ErrSlow))
		return nil
	}
	waiting, cancel := context.WithDeadline(ctx, due.Add(r.Span(slow)))
	defer cancel()
	if err := arrivals.Await(waiting, n); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	sum := arrivals.Summary()
	if sum.Arrived > 0 {
		s.Add(subject, perSecond, float64(sum.Arrived)/max(sum.Last.Sub(due), time.Millisecond).Seconds())
	}
	s.Add(subject, "early of these", float64(sum.Early))
	return ctx.Err()
}
