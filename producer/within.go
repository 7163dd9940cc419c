package producer

import (
	"context"
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
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("no answer, the call may take effect within 3 s: %w", ctx.Err())
	}
}
