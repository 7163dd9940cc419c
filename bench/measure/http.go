package measure

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/bench/report"
)

const (
	overHTTP = "producer serve"
	rawHTTP  = "raw: GET /livez"
)

// lightClient says how the client takes little of the processor time that it shares with the server.
const lightClient = "The HTTP client is fasthttp"

func httpMany() Measure {
	return Measure{
		Name: "http-many", Title: "Batches of 500 lines over 4 HTTP connections", Takes: 7 * time.Second,
		Goals: []report.Goal{{Subject: overHTTP, Name: perSecond, Over: duefleet, AtLeast: 0.7}},
		Notes: []string{"duefleet: ScheduleMany with the same batches from 4 goroutines, in the same run", lightClient},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			const batch, connections = 500, 4
			f, h, err := httpOnly(ctx, r, connections)
			if err != nil {
				return err
			}
			return storing(ctx, r, s, r.Size(200_000), batch, connections, []way{{duefleet, f.Schedule}, {overHTTP, h.Schedule}})
		},
	}
}

func httpOne() Measure {
	const connections = 64
	return Measure{
		Name: "http-one", Title: "One task a request over 64 HTTP connections", Takes: 7 * time.Second,
		Goals: []report.Goal{{Subject: overHTTP, Name: perSecond, Over: duefleet, AtLeast: 0.5},
			{Subject: overHTTP, Name: p99, Over: duefleet, AtMostMore: 2}},
		Notes: []string{"duefleet: Schedule from 64 goroutines, in the same run", lightClient,
			"Percentiles: one request every 2 ms, each until its answer",
			"raw: requests to the page /livez of the same program, which net/http answers without body, token or Redis"},
		Run: func(ctx context.Context, r *harness.Run, s *Results) error {
			f, h, err := httpOnly(ctx, r, connections)
			if err != nil {
				return err
			}
			ways := []way{{duefleet, f.Schedule}, {overHTTP, h.Schedule}}
			if err := storing(ctx, r, s, r.Size(40_000), 1, connections, append(ways, way{rawHTTP, h.Live})); err != nil {
				return err
			}
			for _, w := range ways {
				if err := paced(ctx, r, s, w, r.Size(1000)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// httpOnly returns a fleet whose scanners have stopped, and its HTTP server.
func httpOnly(ctx context.Context, r *harness.Run, connections int) (*harness.Fleet, *harness.HTTP, error) {
	f, err := scheduleOnly(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.StartHTTP(ctx, connections)
	return f, h, err
}

// paced stores tasks at a steady rate and adds how long a call takes.
func paced(ctx context.Context, r *harness.Run, s *Results, w way, n int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var mu sync.Mutex
	var all sync.WaitGroup
	var took []float64
	var failed error
	for _, t := range harness.Tasks(0, n, time.Now().Add(time.Hour).Truncate(time.Millisecond)) {
		<-tick.C
		all.Go(func() {
			begin := time.Now()
			err := w.store(ctx, []harness.Task{t})
			mu.Lock()
			defer mu.Unlock()
			took = append(took, float64(time.Since(begin))/float64(time.Millisecond))
			if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	if failed != nil {
		return failed
	}
	slices.Sort(took)
	s.Add(w.subject, p50, took[len(took)/2])
	s.Add(w.subject, p99, took[len(took)*99/100])
	return empty(ctx, r)
}
