package shard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Definite reports whether Redis answered a call with an error that the same call,
// made again, would meet again: a key of the wrong type, a right that is missing. A
// connection that failed, a server that loads its file or is not the master, a lack
// of memory and what scripts answer in words are not such errors.
func Definite(err error) bool {
	var answered redis.Error
	if !errors.As(err, &answered) || errors.Is(err, redis.Nil) || errors.Is(err, task.ErrReplicas) {
		return false
	}
	return !unsent(err) && !redis.HasErrorPrefix(err, "OOM") && !redis.HasErrorPrefix(err, "NOSCRIPT")
}

// Denied reports whether Redis refused a call for who makes it: a right, or a
// password, that another client may have.
func Denied(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
}

// UnreadableShard is a shard that can't be read, and why.
type UnreadableShard struct {
	Shard int    `json:"shard"`
	Error string `json:"error"`
}

// UnreadableError names shards that could not be read. What was read of the others
// is returned beside it.
type UnreadableError struct {
	Topic string
	// Shards that were left out, in their order.
	Shards []UnreadableShard
	cause  error // the first one's
}

func (e *UnreadableError) Error() string {
	numbers := make([]int, len(e.Shards))
	for i, s := range e.Shards {
		numbers[i] = s.Shard
	}
	return fmt.Sprintf("read %s of topic %s: %s", ShardNames(numbers), e.Topic, e.Shards[0].Error)
}

// Unwrap is why the first of them can't be read.
func (e *UnreadableError) Unwrap() error { return e.cause }

// shardsNamed is how many shards are named at once; the others are counted.
const shardsNamed = 10

// ShardNames is a list of shards for people, as in "shard 2" or "shards 2, 3, 5";
// of more than ten the others are counted.
func ShardNames(shards []int) string {
	if len(shards) == 1 {
		return "shard " + strconv.Itoa(shards[0])
	}
	var names []string
	for _, s := range shards[:min(len(shards), shardsNamed)] {
		names = append(names, strconv.Itoa(s))
	}
	text := "shards " + strings.Join(names, ", ")
	if more := len(shards) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Unreadable are the shards that an error names; nil if it is of another kind, and
// nothing was read.
func Unreadable(err error) []UnreadableShard {
	var partial *UnreadableError
	if errors.As(err, &partial) {
		return partial.Shards
	}
	return nil
}

// LeftOut makes one error of what reading so many of a topic's shards ended with, by
// shard: an *UnreadableError, nil if all were read. Where none was, and the cause may pass or is a right
// that the caller lacks, it is that cause alone: no shard is to blame.
func (t *Topic) LeftOut(of int, failed map[int]error) error {
	if len(failed) == 0 {
		return nil
	}
	e := &UnreadableError{Topic: t.name}
	for at, err := range failed {
		e.Shards = append(e.Shards, UnreadableShard{at, err.Error()})
	}
	slices.SortFunc(e.Shards, func(a, b UnreadableShard) int { return a.Shard - b.Shard })
	e.cause = failed[e.Shards[0].Shard]
	if len(failed) == of && (!Definite(e.cause) || Denied(e.cause)) {
		return e.cause
	}
	return e
}
