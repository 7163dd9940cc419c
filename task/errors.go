package task

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound: no task of that topic and ID is stored. It was delivered, cancelled or
	// removed before, or never scheduled: Redis keeps no trace that tells these apart.
	ErrNotFound = errors.New("no such task")
	// ErrExists: a task of that topic and ID is stored already, and if-absent
	// was asked for.
	ErrExists = errors.New("a task of this ID exists already")
	// ErrInvalid is what every RuleError is, for errors.Is.
	ErrInvalid = errors.New("invalid input")
	// ErrUnknownTopic: no scanner has ever served a topic of that name under
	// this Redis prefix.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrRedisFull: Redis is at maxmemory and refuses to store more. What is
	// stored goes on being delivered.
	ErrRedisFull = errors.New("Redis is out of memory")
	// ErrUnavailable: Redis could not be asked, or the caller's ctx or
	// producer.Config.Timeout ended before it was. The call surely did nothing.
	ErrUnavailable = errors.New("Redis is not available, nothing was done")
	// ErrUncertain: Redis was asked and no answer came. The call may have been carried out,
	// or may be within 3 s: call again, with the same ID.
	ErrUncertain = errors.New("no answer from Redis, the call may take effect within 3 s")
	// ErrReplicas: the master of Redis has what the call wrote, and fewer replicas
	// than were asked for have it.
	ErrReplicas = errors.New("not on enough replicas of Redis")
	// ErrForked: Redis lost a change of the topic's shard count in a failover, and
	// another began under the same epoch. The page docs/operate.md says what to do.
	ErrForked = errors.New("two placements of one epoch")
	// ErrNoNext: the delivery was made without a way to store a next step.
	ErrNoNext = errors.New("this delivery can't be followed by a next step; a test of a handler gives NewDelivery a next")
)

// RuleError says which rule of input a value broke. Nothing was written.
type RuleError struct {
	// Field is the input's name, as in "id".
	Field string
	// Rule is what the field must keep.
	Rule string
	// Got describes the value that broke it, by its size and never by its
	// content where that could be secret.
	Got string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("%s: %s; got %s", e.Field, e.Rule, e.Got)
}

// Is makes every RuleError an ErrInvalid.
func (e *RuleError) Is(target error) bool { return target == ErrInvalid }
