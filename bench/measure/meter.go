package measure

import (
	"context"
	"os"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
)

// These are the columns of CPU time.
const (
	scannersCost = "scanners µs/task"
	redisCost    = "Redis µs/task"
	brokerCost   = "RabbitMQ µs/task"
	harnessCost  = "producer and consumer µs/task"
	allCost      = "all µs/task"
	outsideRedis = "outside Redis µs/task"
)

// meter measures the CPU time of one part of a system.
type meter struct {
	name string
	read func(context.Context) (time.Duration, error)
	used time.Duration
}

// meters measure several parts at the same time.
type meters []*meter

// processes returns a meter for the sum of some processes.
func processes(name string, pids ...int) *meter {
	return &meter{name: name, read: func(context.Context) (time.Duration, error) { return harness.ProcessesCPU(pids...) }}
}

// redisMain returns a meter for the main thread of Redis, which executes the commands.
func redisMain(r *harness.Run) *meter { return &meter{name: redisCost, read: r.Redis.CPU} }

// broker returns a meter for RabbitMQ.
func broker(r *harness.Run) *meter { return processes(brokerCost, r.RabbitMQPID()) }

// ourselves returns a meter for this process, which schedules and consumes.
func ourselves() *meter { return processes(harnessCost, os.Getpid()) }

func (m meters) start(ctx context.Context) error {
	for _, part := range m {
		now, err := part.read(ctx)
		if err != nil {
			return err
		}
		part.used = -now
	}
	return nil
}

func (m meters) stop(ctx context.Context) error {
	for _, part := range m {
		now, err := part.read(ctx)
		if err != nil {
			return err
		}
		part.used += now
	}
	return nil
}

// add adds a column for each part: the CPU time per task.
func (m meters) add(s *Results, subject string, tasks int) {
	for _, part := range m {
		s.Add(subject, part.name, micros(part.used, tasks))
	}
}

// addSums adds the CPU time per task of all parts together, and of all parts except
// Redis.
func (m meters) addSums(s *Results, subject string, tasks int) {
	var all, outside time.Duration
	for _, part := range m {
		all += part.used
		if part.name != redisCost {
			outside += part.used
		}
	}
	s.Add(subject, allCost, micros(all, tasks))
	s.Add(subject, outsideRedis, micros(outside, tasks))
}

// micros returns the µs per task.
func micros(d time.Duration, tasks int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(tasks)
}
