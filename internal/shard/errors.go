package shard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Unknown reports whether a call that ended with err may have been carried out, or may
// still be: its answer did not come.
func Unknown(err error) bool {
	return luascript.Unanswered(err) && !errors.Is(err, ErrLate) && !errors.Is(err, errOlder)
}

// Definite reports whether Redis answered a call with an error that a repeat would meet
// again: see luascript.Definite.
func Definite(err error) bool { return luascript.Definite(err) }

// Denied reports whether Redis refused a call because of its user: see luascript.Denied.
func Denied(err error) bool { return luascript.Denied(err) }

// UnreadableShard is a shard that can't be read, and why.
type UnreadableShard struct {
	Shard int    `json:"shard"`
	Error string `json:"error"`
}

// UnreadableError names shards that could not be read. The results of the other shards
// are returned with it.
type UnreadableError struct {
	Topic string
	// Shards that were left out, in their order.
	Shards []UnreadableShard
	cause  error // the first shard's
}

func (e *UnreadableError) Error() string {
	numbers := make([]int, len(e.Shards))
	for i, s := range e.Shards {
		numbers[i] = s.Shard
	}
	return fmt.Sprintf("read %s of topic %s: %s", ShardNames(numbers), e.Topic, e.Shards[0].Error)
}

// Unwrap returns the error of the first of these shards.
func (e *UnreadableError) Unwrap() error { return e.cause }

// shardsNamed is how many shards a message names at most; it counts the others.
const shardsNamed = 10

// ShardNames returns a list of shards for people, as in "shard 2" or "shards 2, 3, 5". It
// names ten shards at most and counts the others.
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

// Unreadable returns the shards that an *UnreadableError names; nil if err is another
// error, with which nothing was read.
func Unreadable(err error) []UnreadableShard {
	var partial *UnreadableError
	if errors.As(err, &partial) {
		return partial.Shards
	}
	return nil
}

// LeftOut combines the errors of reading "of" shards, by shard: nil if there are none,
// otherwise an *UnreadableError. If all shards failed and the first error is transient or
// a missing right, LeftOut returns that error alone: no shard is to blame.
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
