package luascript

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

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
