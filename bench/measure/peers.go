package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/peers"
)

// system is duefleet or a peer at work.
type system interface {
	harness.Scheduler
	PIDs() []int
	Stop() error
}

// eachSystem measures duefleet and then every peer, each with an empty Redis and
// a queue of its own. A peer that can't be measured here, or fails, is a note and
// keeps nobody from measuring the others.
func eachSystem(ctx context.Context, r *harness.Run, s *Results, measure func(sys system, subject, queue string) error) error {
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
		if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
			return err
		}
		if err := onePeer(ctx, r, p, measure); err != nil {
			s.Note(fmt.Sprintf("%s: not measured in full: %v", p.Name, err))
		}
	}
	return ctx.Err()
}

func onePeer(ctx context.Context, r *harness.Run, p peers.Peer, measure func(system, string, string) error) error {
	queue, err := r.Queue("peer", harness.Classic)
	if err != nil {
		return err
	}
	run, err := p.Start(ctx, r, queue)
	if err != nil {
		return err
	}
	return errors.Join(measure(run, p.Name, queue), run.Stop())
}

func peersLateness(perSecond float64) Measure {
	load := harness.Load{Rate: perSecond, For: 30 * time.Second, From: 200 * time.Millisecond, To: 5 * time.Second}
	return Measure{
		Name: fmt.Sprintf("peers-lateness-%.0f", perSecond), Title: fmt.Sprintf("duefleet and its peers, Poisson %.0f/s, delays 0.2 to 5 s", perSecond),
		Notes: []string{"Not arrived: 30 s after the last was due; the percentiles are of those that arrived. How each is set up: see Peers"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			load.For = r.Span(load.For)
			return eachSystem(ctx, r, s, func(sys system, subject, queue string) error {
				return offered(ctx, r, sys, queue, load, s, subject)
			})
		},
	}
}

func peersDrain() Measure {
	return Measure{
		Name: "peers-drain", Title: "duefleet and its peers, 20,000 due tasks into a durable classic queue that is consumed",
		Notes: []string{"From the due time to the last arrival, or those that arrived within a minute"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(20_000)
			if err := bare(ctx, r, s, harness.Classic, n); err != nil {
				return err
			}
			return eachSystem(ctx, r, s, func(sys system, subject, queue string) error {
				return drainedArrivals(ctx, r, sys, queue, s, subject, n)
			})
		},
	}
}

// drainedArrivals counts at the consumer, since not every peer tells how much it
// still holds.
func drainedArrivals(ctx context.Context, r *harness.Run, sys system, queue string, s *Results, subject string, n int) error {
	const perTask = time.Millisecond
	if err := warm(ctx, r, sys, queue); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	arrivals, stop, err := r.Consume(ctx, queue)
	if err != nil {
		return err
	}
	defer stop()
	due := time.Now().Add(3*time.Second + time.Duration(n)*perTask).Truncate(time.Second)
	if err := harness.Fill(ctx, sys, warmUp, warmUp+n, due); err != nil {
		return err
	}
	if time.Now().After(due) {
		s.Note(fmt.Sprintf("%s: not measured: %v", subject, harness.ErrSlow))
		return nil
	}
	waiting, cancel := context.WithDeadline(ctx, due.Add(time.Minute))
	defer cancel()
	if err := arrivals.Await(waiting, n); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	sum := arrivals.Summary()
	if sum.Arrived > 0 {
		s.Add(subject, perSecond, float64(sum.Arrived)/sum.Last.Sub(due).Seconds())
	}
	s.Add(subject, "early", float64(sum.Early))
	s.Add(subject, "twice", float64(sum.Repeated))
	s.Add(subject, "not arrived", float64(n-sum.Arrived))
	return ctx.Err()
}

func peersMemory() Measure {
	return Measure{
		Name: "peers-memory", Title: "duefleet and its peers, memory of a pending task, ID of 18 bytes, payload of 200",
		Notes: []string{"Growth of Redis's used_memory, or of beanstalkd's resident memory, by 100,000 tasks"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			n := r.Size(100_000)
			return eachSystem(ctx, r, s, func(sys system, subject, _ string) error {
				of := r.Redis.Memory
				if p, ok := sys.(*peers.Running); ok {
					of = p.Memory
				}
				return grownBy(ctx, r, s, subject, sys.Schedule, of, n)
			})
		},
	}
}

func peersIdle() Measure {
	return Measure{
		Name: "peers-idle", Title: "duefleet (M = 4) and its peers with nothing to do",
		Notes: []string{"CPU of the dearest member, % of one core"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			return eachSystem(ctx, r, s, func(sys system, subject, _ string) error {
				if err := harness.Sleep(ctx, 2*time.Second); err != nil {
					return err
				}
				return resting(ctx, r, s, subject, sys.PIDs(), 0)
			})
		},
	}
}
