package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// doubt is set once a script that writes was sent and its answer did not come: whatever
// follows, the operation that sent it may have been carried out.
type doubt struct{ set atomic.Bool }

type doubtKey struct{}

// withDoubt returns the context of an operation, whose scripts report to the doubt.
func withDoubt(ctx context.Context) (context.Context, *doubt) {
	d := &doubt{}
	return context.WithValue(ctx, doubtKey{}, d), d
}

// note sets the operation's doubt if a script ended so that it may have been executed.
func note(ctx context.Context, err error) {
	if d, ok := ctx.Value(doubtKey{}).(*doubt); ok && unknown(err) && !neverSent(err) {
		d.set.Store(true)
	}
}

// carriedOut sets the operation's doubt: a part of it is done, whatever follows.
func carriedOut(ctx context.Context) {
	if d, ok := ctx.Value(doubtKey{}).(*doubt); ok {
		d.set.Store(true)
	}
}

// judge returns the error of an operation as task.ErrUncertain if it may have been carried
// out, or may be yet, and as task.ErrUnavailable if it surely was not since Redis could
// not be asked. What Redis answered it returns as it is.
func (d *doubt) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, task.ErrUncertain), errors.Is(err, task.ErrReplicas):
		return err
	case errors.Is(err, task.ErrExists), errors.Is(err, task.ErrNotFound):
		return err // by the number of the operation it knows its own copies
	case d.set.Load():
		return uncertain(err)
	}
	return Unasked(err)
}

func uncertain(err error) error { return fmt.Errorf("%w: %w", task.ErrUncertain, err) }

// Unasked returns the error of a call that has not written as task.ErrUnavailable, if it
// is that Redis could not be asked, or that the caller's ctx ended before.
func Unasked(err error) error {
	if err == nil || errors.Is(err, task.ErrUnavailable) || !unasked(err) {
		return err
	}
	return fmt.Errorf("%w: %w", task.ErrUnavailable, err)
}

func unasked(err error) bool {
	var answered redis.Error
	if errors.As(err, &answered) {
		return unsent(err)
	}
	var network net.Error
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, context.DeadlineExceeded, redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return errors.As(err, &network) || strings.Contains(err.Error(), "redis: all sentinels")
}

// neverSent says that a command has not left this process.
func neverSent(err error) bool {
	return unsent(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}
