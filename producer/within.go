package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// bounded returns the context of one call, which ends with ctx, and after
// Config.Timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

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

// writes is within for a call that may have been carried out when ctx ends.
func writes[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	return within(ctx, c, task.ErrUncertain, call)
}

// reads is within for a call that changes nothing.
func reads[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	return within(ctx, c, task.ErrUnavailable, call)
}

// within returns what call returns, or an error of a kind as soon as ctx is over. Then
// call goes on by itself, and the shard does nothing that reaches it more than 3 s later. A
// ctx that was over before is task.ErrUnavailable.
func within[T any](ctx context.Context, c *Client, kind error, call func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", task.ErrUnavailable, err)
	}
	if c.endsWithContext || ctx.Done() == nil {
		value, err := call()
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
		a.value, a.err = call()
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

// explained says what to do about an error whose words don't.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: make calls before Close, that of the Client and that of Config.Redis", err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: another program writes under this prefix of this Redis; give it another", err)
	}
	return err
}

// errUnanswered is the error of a call whose goroutine a hook of the client ended.
var errUnanswered = errors.New("a hook of the Redis client ended the call")
