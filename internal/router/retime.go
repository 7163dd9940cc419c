package router

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Retime asks for a new due time of one waiting task, which keeps its attempts.
type Retime struct {
	ID string
	// When the task is due. With Now it is task.Now.
	When task.When
	// Retiming has the version that the caller has read.
	Retiming shard.Retiming
	// Op identifies the operation. A task that has it was moved already, and stays as it is.
	Op shard.Op
}

// RetimeMany gives waiting tasks new due times, in the steps of RescheduleMany. Unlike
// these, it keeps attempts and reason, and changes only the version that its caller has
// read: see the errors of shard.MoveResult. The results are in the order of the moves.
func (r *Router) RetimeMany(ctx context.Context, moves []Retime, maxPayload int) []Scheduled {
	return inChunks(moves, maxPayload, func(some []Retime) []Scheduled {
		all := make([]shard.Move, len(some))
		for i := range some {
			m := &some[i]
			all[i] = shard.Move{Op: m.Op, ID: m.ID, When: m.When, Term: r.term, Retime: &m.Retiming}
		}
		return r.move(ctx, all)
	})
}
