package shard

import (
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Version names one state of a stored task: the call that wrote it, and its attempts since.
// A claim that didn't deliver the task changes the attempts only if it counted.
type Version struct {
	Op       Op
	Attempts int
}

// Version returns the version of a record that can be read.
func (r Record) Version() Version { return Version{Op(r.Op), r.Attempt - 1} }

// Retiming makes a Move keep the attempts, the reason and the first due time of its task.
type Retiming struct {
	// Seen is the version that the caller has read. Another one stays as it is.
	Seen Version
	// Now tries the task now. A due time that has passed stays as it is. Move.When is
	// task.Now then.
	Now bool
}

// Errors of a Move with a Retiming: the task stays as it is.
var (
	ErrChanged = errors.New("the task was changed, or tried, in the meantime")
	ErrLeased  = errors.New("a scanner is delivering the task")
	ErrParked  = errors.New("the task is parked")
	ErrDue     = errors.New("the task is due already")
)

// untouched returns the error for the status of a retiming that changed nothing; nil for
// another status.
func untouched(status string) error {
	return map[string]error{"changed": ErrChanged, "leased": ErrLeased, "parked": ErrParked, "due": ErrDue}[status]
}

// retimeCall is rescheduleCall of a move with a Retiming.
func (t *Topic) retimeCall(placement string, deadline int64, m *Move) luascript.Call {
	call := t.rescheduleCall(placement, deadline, m)
	call.Script = "retime"
	call.Args = append(call.Args, string(m.Retime.Seen.Op), m.Retime.Seen.Attempts, m.Retime.Now)
	return call
}

// retimed reads the reply about a move with a Retiming.
func (t *Topic) retimed(reply luascript.Reply, shard int) (due int64, err error) {
	rest := reply.Values()
	if err := untouched(rest.Text()); err != nil && rest.Err() == nil {
		return 0, fmt.Errorf("topic %s: %w", t.name, err)
	}
	return t.moved(reply, shard)
}
