package luascript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Probation says whether an operation may have been carried out, whatever follows. That is
// so once a script that writes was sent and its answer did not come.
type Probation struct{ carriedOut atomic.Bool }

type probationKey struct{}

// OnProbation returns ctx with a Probation, to which the calls of one operation report.
func OnProbation(ctx context.Context) (context.Context, *Probation) {
	p := &Probation{}
	return context.WithValue(ctx, probationKey{}, p), p
}

// observe notes that a script which ended with err may have been executed.
func observe(ctx context.Context, err error) {
	if unanswered(err) && !neverSent(err) {
		CarriedOut(ctx)
	}
}

// CarriedOut notes that a part of the operation is done, or may be.
func CarriedOut(ctx context.Context) {
	if p, ok := ctx.Value(probationKey{}).(*Probation); ok {
		p.carriedOut.Store(true)
	}
}

// CarriedOut reports whether a part of the operation is done, or may be.
func (p *Probation) CarriedOut() bool { return p.carriedOut.Load() }

// Judge adds task.ErrUncertain to err if the operation may have been carried out, or may
// still be. It adds task.ErrUnavailable if Redis could not be asked, so that the
// operation was certainly not carried out. It returns other errors, which Redis answered,
// unchanged.
func (p *Probation) Judge(err error) error {
	switch {
	case err == nil, errors.Is(err, task.ErrUncertain), errors.Is(err, task.ErrReplicas):
		return err
	case errors.Is(err, task.ErrExists), errors.Is(err, task.ErrNotFound):
		return err // a script knows the record that an earlier copy of it stored
	case p.carriedOut.Load():
		return Uncertain(err)
	}
	return Unasked(err)
}

// PartlyDone is Judge for an operation that is partly done.
func PartlyDone(err error) error {
	p := &Probation{}
	p.carriedOut.Store(true)
	return p.Judge(err)
}

// Uncertain adds task.ErrUncertain to err.
func Uncertain(err error) error { return fmt.Errorf("%w: %w", task.ErrUncertain, err) }

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
		return notExecuted(err)
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
	return notExecuted(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// notExecuted reports whether a script was certainly not executed, but may be soon: no
// connection could be made, or the server refused for now.
func notExecuted(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return redirected(err) || hasPrefix(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY")
}

// redirected reports whether a node of a Redis Cluster doesn't serve the slot of a
// script. The client follows redirects by itself, but only a few times, and not in a
// pipeline with WAIT.
func redirected(err error) bool { return hasPrefix(err, "MOVED", "ASK", "TRYAGAIN") }

func hasPrefix(err error, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return redis.HasErrorPrefix(err, p) })
}

// unanswered reports whether a script may have been executed, or may still be, and the
// client is open.
func unanswered(err error) bool {
	var answered redis.Error
	return err != nil && !errors.As(err, &answered) && !errors.Is(err, redis.ErrClosed) &&
		!errors.Is(err, task.ErrReplicas)
}

// Unanswered reports whether a call that ended with err may have been carried out, or may
// still be: its answer did not come.
func Unanswered(err error) bool {
	return unanswered(err) && !notExecuted(err) && !errors.Is(err, task.ErrRedisFull)
}

// Definite reports whether Redis answered a call with an error that a repeat would meet
// again. Examples are a key of the wrong type and a missing right. It is false for a
// failed connection, and for a server that lacks memory, loads its file or is not the
// master. It is also false for errors that a caller made from a reply.
func Definite(err error) bool {
	var answered redis.Error
	if !errors.As(err, &answered) || errors.Is(err, redis.Nil) || errors.Is(err, task.ErrReplicas) {
		return false
	}
	return !notExecuted(err) && !hasPrefix(err, "OOM", "NOSCRIPT")
}

// Explain turns Redis's out-of-memory error into task.ErrRedisFull.
func Explain(err error) error {
	if redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("%w: raise maxmemory or let the backlog drain", task.ErrRedisFull)
	}
	return err
}
