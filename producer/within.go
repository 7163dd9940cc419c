package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/task"
)

// bounded returns the context of one call, which ends with ctx or after Config.Timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// endsWithContext reports whether the calls of a client end with their context. Without
// ContextTimeoutEnabled go-redis waits for the answer first.
func endsWithContext(rdb redis.UniversalClient) bool {
	switch rdb := rdb.(type) {
	case nil: // New makes the client
		return true
	case *redis.Client:
		return rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	}
	return false
}

// now returns the time by Redis's clock, for checks.
func (c *Client) now(ctx context.Context) (time.Time, error) {
	ask := func(ctx context.Context, rs *router.Routers) (int64, error) { return rs.Now(ctx) }
	ms, err := within(ctx, c, task.ErrUnavailable, ask, c.routers)
	return time.UnixMilli(ms), err
}

// within returns the result of call for an argument. If ctx ends first, it returns an error
// of the given kind, and call keeps running in its goroutine. The kind is
// task.ErrUncertain for a call that changes tasks, because Redis may have executed it. For
// other calls it is task.ErrUnavailable. A shard ignores a request that arrives more than
// 3 s later. If ctx ended before within was called, call isn't started, and the error is
// task.ErrUnavailable.
func within[A, T any](
	ctx context.Context, c *Client, kind error, call func(context.Context, A) (T, error), argument A,
) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", task.ErrUnavailable, err)
	}
	if c.endsWithContext || ctx.Done() == nil {
		value, err := call(ctx, argument)
		return value, explained(err)
	}
	type answer struct {
		value    T
		err      error
		panicked any
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: fmt.Errorf("%w: %w", kind, errUnanswered)}
		defer func() { // a hook of the client may panic, or end its goroutine
			a.panicked = recover()
			answers <- a
		}()
		a.value, a.err = call(ctx, argument)
	}()
	select {
	case a := <-answers:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, explained(a.err)
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", kind, ctx.Err())
	}
}

// explained adds advice to an error whose text doesn't say what to do.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Client or Config.Redis was closed; close them after the last call", err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: another program writes under this prefix of this Redis; give it another", err)
	}
	return err
}

// errUnanswered means that a hook of the Redis client ended the goroutine of the call
// (runtime.Goexit).
var errUnanswered = errors.New("a hook of the Redis client ended the call")
