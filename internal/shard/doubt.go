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

// doubt says that an operation may have been carried out, whatever follows. It is set
// when a script that writes was sent and its answer did not come.
type doubt struct{ set atomic.Bool }

type doubtKey struct{}

// withDoubt returns ctx with a doubt, to which the scripts of one operation report.
func withDoubt(ctx context.Context) (context.Context, *doubt) {
	d := &doubt{}
	return context.WithValue(ctx, doubtKey{}, d), d
}

// note sets the operation's doubt if a script that ended with err may have been executed.
func note(ctx context.Context, err error) {
	if d, ok := ctx.Value(doubtKey{}).(*doubt); ok && unknown(err) && !neverSent(err) {
		d.set.Store(true)
	}
}

// carriedOut sets the operation's doubt: a part of the operation is done.
func carriedOut(ctx context.Context) {
	if d, ok := ctx.Value(doubtKey{}).(*doubt); ok {
		d.set.Store(true)
	}
}

// judge adds task.ErrUncertain to err if the operation may have been carried out, or may
// still be. It adds task.ErrUnavailable if Redis could not be asked, so that the
// operation was certainly not carried out. It returns other errors, which Redis answered,
// unchanged.
func (d *doubt) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, task.ErrUncertain), errors.Is(err, task.ErrReplicas):
		return err
	case errors.Is(err, task.ErrExists), errors.Is(err, task.ErrNotFound):
		return err // a script knows the record that an earlier copy of it stored
	case d.set.Load():
		return uncertain(err)
	}
	return Unasked(err)
}

func uncertain(err error) error { return fmt.Errorf("%w: %w", task.ErrUncertain, err) }

// Unasked adds task.ErrUnavailable to the error of a call that has written nothing, if
// Redis could not be asked or the caller's ctx had ended.
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
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, context.DeadlineExceeded,
		redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return errors.As(err, &network) || strings.Contains(err.Error(), "redis: all sentinels")
}

// neverSent reports whether a command was certainly not executed: it did not leave this
// process, or the server refused it for now.
func neverSent(err error) bool {
	return unsent(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}
