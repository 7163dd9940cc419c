package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// endsWithContext reports whether a client's calls end with their context: go-redis
// waits for the answer first, unless ContextTimeoutEnabled is set.
func endsWithContext(rdb redis.UniversalClient) bool {
	switch rdb := rdb.(type) {
	case nil: // a client of our own
		return true
	case *redis.Client:
		return rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	}
	return false
}

// within returns what call returns, or ctx's error as soon as ctx is over. Then call goes
// on by itself, and the shard does nothing that reaches it more than 3 s later.
func within[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	if c.endsWithContext || ctx.Done() == nil {
		return call()
	}
	type answer struct {
		value    T
		err      error
		panicked any
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: errUnanswered}
		defer func() { // a hook of the client may panic, or end its goroutine
			a.panicked = recover()
			answers <- a
		}()
		a.value, a.err = call()
	}()
	select {
	case a := <-answers:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("no answer, the call may take effect within 3 s: %w", ctx.Err())
	}
}

// errUnanswered is the error of a call whose goroutine a hook of the client ended.
var errUnanswered = errors.New("the call ended without an answer, it may take effect within 3 s")
