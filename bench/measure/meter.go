package measure

import (
	"context"
	"os"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
)

// The columns of processor time.
const (
	scannersCost = "scanners µs/task"
	redisCost    = "Redis µs/task"
	brokerCost   = "RabbitMQ µs/task"
	harnessCost  = "producer and consumer µs/task"
	allCost      = "all µs/task"
	outsideRedis = "outside Redis µs/task"
)

// meter is the processor time that one part of a system uses over a while.
type meter struct {
	name string
	read func(context.Context) (time.Duration, error)
	used time.Duration
}

// meters are those of all parts that are measured together.
type meters []*meter

// processes meters some processes as a whole.
func processes(name string, pids ...int) *meter {
	return &meter{name: name, read: func(context.Context) (time.Duration, error) { return harness.ProcessesCPU(pids...) }}
}

// redisMain meters the main thread of Redis, which executes the commands.
func redisMain(r *harness.Run) *meter { return &meter{name: redisCost, read: r.Redis.CPU} }

// broker meters RabbitMQ.
func broker(r *harness.Run) *meter { return processes(brokerCost, r.RabbitMQPID()) }

// ourselves meters this process, which schedules and consumes.
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

// add adds a column for each part: what a task took.
func (m meters) add(s *Results, subject string, tasks int) {
	for _, part := range m {
		s.Add(subject, part.name, micros(part.used, tasks))
	}
}

// addSums adds what a task took of all parts together, and of those that aren't
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

// micros is the µs of each task.
func micros(d time.Duration, tasks int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(tasks)
}
