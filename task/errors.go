package task

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound: no task of that topic and ID is stored. It was delivered, cancelled or
	// removed, or never scheduled. Redis keeps nothing that distinguishes these cases.
	ErrNotFound = errors.New("no such task")
	// ErrExists: the call asked for if-absent, and a task of that topic and ID is stored
	// already.
	ErrExists = errors.New("a task of this ID exists already")
	// ErrInvalid matches every RuleError in errors.Is.
	ErrInvalid = errors.New("invalid input")
	// ErrUnknownTopic: no scanner has ever served a topic of that name under
	// this Redis prefix.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrRedisFull: Redis is at maxmemory and refuses to store more. Stored tasks are
	// still delivered.
	ErrRedisFull = errors.New("Redis is out of memory")
	// ErrUnavailable: Redis couldn't be reached, or the caller's ctx or
	// producer.Config.Timeout ended before the request was sent. The call certainly did
	// nothing.
	ErrUnavailable = errors.New("Redis is not available, nothing was done")
	// ErrUncertain: the request was sent to Redis and no answer came. Redis may have
	// executed it, or may execute it within 3 s. Call again with the same ID.
	ErrUncertain = errors.New("no answer from Redis, the call may take effect within 3 s")
	// ErrReplicas: the master of Redis has the change, but fewer replicas than requested
	// have it.
	ErrReplicas = errors.New("not on enough replicas of Redis")
	// ErrForked: Redis lost a change of the topic's shard count in a failover, and
	// another change began under the same epoch. See docs/operate.md for the fix.
	ErrForked = errors.New("two placements of one epoch")
	// ErrNoNext: the delivery was made without a function that stores a next step.
	ErrNoNext = errors.New("this delivery can't have a next step; a test of a handler must pass a function to NewDelivery")
)

// RuleError names the input rule that a value broke. Nothing was written.
type RuleError struct {
	// Field is the input's name, as in "id".
	Field string
	// Rule is the rule, as in "must be 1 to 255 bytes of valid UTF-8".
	Rule string
	// Got describes the value, mostly by its size. It never contains what may be secret.
	Got string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("%s: %s; got %s", e.Field, e.Rule, e.Got)
}

// Is makes every RuleError an ErrInvalid.
func (e *RuleError) Is(target error) bool { return target == ErrInvalid }
