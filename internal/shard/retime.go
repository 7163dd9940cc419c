package shard

import "errors"

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
