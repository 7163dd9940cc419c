package consumer

import (
	"sync"

	"github.com/duefleet/duefleet/task"
)

// busy is the set of tasks whose handlers run.
type busy struct {
	mu    sync.Mutex
	tasks map[*task.Task]struct{}
}

// add records that a task's handler runs, until the caller calls remove.
func (b *busy) add(t *task.Task) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tasks == nil {
		b.tasks = map[*task.Task]struct{}{}
	}
	b.tasks[t] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tasks, t)
	}
}

// names returns the number of running handlers, and the topic and ID of up to ten tasks.
func (b *busy) names() (n int, some []string) {
	const most = 10
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range b.tasks {
		if len(some) == most {
			break
		}
		some = append(some, t.Topic+"/"+t.ID)
	}
	return len(b.tasks), some
}
