package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	commands      = "commands/s"
	innerCommands = "with those inside scripts"
	membersCPU    = "CPU % of all members"
	redisCPU      = "Redis CPU %"
	bothCPU       = "CPU % of members and Redis"
)

func idle() Measure {
	of := func(c harness.FleetConfig) string {
		if c.Topics > 1 {
			return fmt.Sprintf("duefleet, %d scanners, %d topics, M = 4", c.Scanners, c.Topics)
		}
		return fmt.Sprintf("duefleet, 3 scanners, M = %d", c.Shards)
	}
	wide, many, few := harness.FleetConfig{Shards: 4096}, harness.FleetConfig{Shards: 64}, harness.FleetConfig{Shards: 4}
	crowd := harness.FleetConfig{Scanners: 20, Topics: 10}
	return Measure{
		Name: "idle", Title: "nothing to do", Takes: 140 * time.Second, Once: true,
		Goals: []report.Goal{
			{Subject: of(many), Name: membersCPU, AtMost: 1}, {Subject: of(few), Name: membersCPU, AtMost: 1},
			{Subject: of(wide), Name: bothCPU, AtMost: 2}, {Subject: of(crowd), Name: membersCPU, AtMost: 9},
			{Subject: of(crowd), Name: redisCPU, AtMost: 1}, {Subject: of(crowd), Name: innerCommands, AtMost: 200},
		},
		Notes: []string{
			"CPU is in % of one core, for all scanners together and for Redis's main thread",
			"Commands are counted as clients send them, with a script as one, and as INFO commandstats counts them",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			for _, c := range []harness.FleetConfig{many, few, wide, crowd} {
				f, err := r.StartFleet(ctx, c)
				if err != nil {
					return err
				}
				if err := harness.Sleep(ctx, r.Span(settled(c))); err != nil {
					return err
				}
				if err := resting(ctx, r, s, of(c), f.PIDs(), 8*time.Second); err != nil {
					return err
				}
				if err := f.Stop(); err != nil {
					return err
				}
				if err := r.Redis.Client.FlushAll(ctx).Err(); err != nil {
					return err
				}
			}
			return resting(ctx, r, s, "raw: no scanner at all", nil, 2*time.Second)
		},
	}
}

// settled is how long a fleet takes to become idle. With many shards its topic must sleep. With many
// topics, each scanner looks once for orphaned tasks, and the fleet looks at 2.5 topics a second.
func settled(c harness.FleetConfig) time.Duration {
	switch {
	case c.Topics > 1:
		return 90 * time.Second
	case c.Shards > 1000:
		return 15 * time.Second
	}
	return settling
}

// settling is how long a system that has just started takes to become idle.
const settling = 2 * time.Second

// resting adds the costs of an idle system: the CPU time of its processes, Redis's CPU
// time and commands. Without pids it leaves out the processes.
func resting(ctx context.Context, r *harness.Run, s *Results, subject string, pids []int, span time.Duration) error {
	span = r.Span(span)
	before, err := snapshot(ctx, r.Redis, pids)
	if err != nil {
		return err
	}
	if err := harness.Sleep(ctx, span); err != nil {
		return err
	}
	after, err := snapshot(ctx, r.Redis, pids)
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	// MONITOR costs Redis more than the idle system, so it runs after Redis's CPU is
	// measured.
	sent, err := r.Redis.Sent(ctx, span/4)
	if err != nil {
		return fmt.Errorf("watch commands: %w", err)
	}
	members := 100 * (after.members - before.members).Seconds() / seconds
	redis := 100 * (after.redis - before.redis).Seconds() / seconds
	if len(pids) > 0 {
		s.Add(subject, membersCPU, members)
	}
	s.Add(subject, redisCPU, redis)
	if len(pids) > 0 {
		s.Add(subject, bothCPU, members+redis)
	}
	s.Add(subject, commands, sent)
	s.Add(subject, innerCommands, float64(after.commands-before.commands)/seconds)
	return nil
}

type moment struct {
	at             time.Time
	commands       int64
	redis, members time.Duration
}

func snapshot(ctx context.Context, r *harness.Redis, pids []int) (moment, error) {
	calls, err := r.Commands(ctx)
	if err != nil {
		return moment{}, err
	}
	members, err := harness.ProcessesCPU(pids...)
	if err != nil {
		return moment{}, err
	}
	redis, err := r.CPU(ctx)
	return moment{time.Now(), harness.Total(calls), redis, members}, err
}

const (
	rss               = "MB of a scanner"
	redisConnections  = "Redis connections of a scanner"
	brokerConnections = "RabbitMQ connections of a scanner"
)

// addMost adds the memory of the scanner that has most, in MB. of returns the bytes of a
// process.
func addMost(f *harness.Fleet, of func(pid int) (int64, error), s *Results, subject, name string) error {
	var most int64
	for _, pid := range f.PIDs() {
		bytes, err := of(pid)
		if err != nil {
			return err
		}
		most = max(most, bytes)
	}
	s.Add(subject, name, float64(most)/1e6)
	return nil
}

// addConnections adds the connections of a scanner in the mean. Redis had some before the fleet.
func addConnections(ctx context.Context, r *harness.Run, f *harness.Fleet, s *Results, subject string,
	before int) error {
	after, err := r.Redis.Connections(ctx)
	if err != nil {
		return err
	}
	brokers, err := r.BrokerConnections(ctx)
	if err != nil {
		return err
	}
	scanners := float64(len(f.PIDs()))
	s.Add(subject, redisConnections, float64(after-before)/scanners)
	s.Add(subject, brokerConnections, float64(brokers)/scanners)
	return nil
}

// scrape adds the size of a scanner's metrics, and how long they take.
func scrape(ctx context.Context, f *harness.Fleet, s *Results, subject string) error {
	var took []float64
	var size, series int
	for range 5 {
		if err := harness.Sleep(ctx, time.Second); err != nil {
			return err
		}
		begun := time.Now()
		var err error
		if size, series, err = f.Scrape(ctx); err != nil {
			return err
		}
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	slices.Sort(took)
	s.Add(subject, "page of metrics kB", float64(size)/1000)
	s.Add(subject, "series", float64(series))
	s.Add(subject, "ms for a page", took[len(took)/2])
	return nil
}

// asleep measures a fleet with many topics in which nothing is due. The topics fall asleep
// within the first half minute.
func asleep(topics int) Measure {
	const ready, stopped = "ready after s", "stopped after s"
	name, number := "asleep", report.Number(float64(topics))
	many := "duefleet, " + number + " topics"
	bounds := []report.Value{{Name: membersCPU, Value: 4}, {Name: redisCPU, Value: 1}, {Name: innerCommands, Value: 400},
		{Name: rss, Value: 120}, {Name: redisConnections, Value: 20}, {Name: brokerConnections, Value: 2},
		{Name: ready, Value: 5}, {Name: stopped, Value: 2}}
	if topics > 1000 {
		name = fmt.Sprintf("asleep-%d", topics)
		bounds = []report.Value{{Name: membersCPU, Value: 18}, {Name: redisCPU, Value: 2}, {Name: rss, Value: 500},
			{Name: ready, Value: 30}}
	}
	return Measure{
		Name: name, Title: number + " topics with nothing to do, M = 4 each, 3 scanners",
		Takes: 50*time.Second + time.Duration(topics)*4*time.Millisecond, Once: true,
		Goals: within(many, bounds...),
		Notes: []string{
			"Measured from 30 s after the scanners are ready, in % of one core: all three scanners, and Redis's main thread",
			"Memory is the resident set of the scanner that has most",
			"Ready and stopped are of all three scanners, which start and stop together",
			"1,000 topics are in a file, 10,000 in Consul",
			"The page is one scanner's metrics; its time is the median of five, a second apart",
			"Each scanner looks at each topic about once a minute. These looks aren't spread evenly. So the commands of a " +
				"window differ: with 1,000 topics from 60 to 240, and 182 in the mean of a minute",
		},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			before, err := r.Redis.Connections(ctx)
			if err != nil {
				return err
			}
			begun := time.Now()
			f, err := r.StartFleet(ctx, harness.FleetConfig{Topics: topics})
			if err != nil {
				return err
			}
			s.Add(many, ready, time.Since(begun).Seconds())
			if err := harness.Sleep(ctx, r.Span(30*time.Second)); err != nil {
				return err
			}
			if err := resting(ctx, r, s, many, f.PIDs(), 12*time.Second); err != nil {
				return err
			}
			if err := addMost(f, harness.RSS, s, many, rss); err != nil {
				return err
			}
			if err := addConnections(ctx, r, f, s, many, before); err != nil {
				return err
			}
			if err := scrape(ctx, f, s, many); err != nil {
				return err
			}
			ending := time.Now()
			err = f.Stop()
			s.Add(many, stopped, time.Since(ending).Seconds())
			return err
		},
	}
}
