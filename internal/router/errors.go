package router

import (
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/task"
)

var (
	// ErrRemoved comes with another error, such as task.ErrReplicas: a task of the ID was removed, and
	// the cancel isn't complete. A repeat that returns task.ErrNotFound completes it.
	ErrRemoved = errors.New("the task was removed")
	// ErrRepeated comes with task.ErrNotFound and task.ErrExists: a call was sent again after a lost
	// reply. The first copy may have taken effect. A call for several tasks returns it for each.
	ErrRepeated = errors.New("the call was sent again after a lost reply, and the first copy may have taken effect")
)

// repeated adds ErrRepeated to task.ErrNotFound and task.ErrExists.
func repeated(err error) error {
	if errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrExists) {
		return fmt.Errorf("%w, but: %w", err, ErrRepeated)
	}
	return err
}
