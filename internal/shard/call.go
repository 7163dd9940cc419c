package shard

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/task"
)

// script is one script, known to Redis by the hash of its text.
type script struct {
	*redis.Script
	text string
}

// call is one execution of a script on one shard.
type call struct {
	script string
	keys   []string
	args   []any
	// notAfter is where in args the Redis ms stands after which the script does
	// nothing. 0: it has none, and may be repeated at any time.
	notAfter int
	// fence is the hash that notes that replicas were waited for, if they are to have
	// what this writes: the shard's fence, or the history of an ID.
	fence string
	// renew returns the arguments with a new not-after time, and without what nobody
	// waits for any more; nil if nothing is left. nil: notAfter alone is replaced.
	renew func(notAfter int64) []any
}

// renewed returns the call with a new not-after time. It reports false if nobody
// waits for the call any more.
func (c call) renewed(notAfter int64) (call, bool) {
	if c.renew == nil {
		c.args[c.notAfter] = notAfter
		return c, true
	}
	c.args = c.renew(notAfter)
	return c, c.args != nil
}

// once is a command that go-redis never repeats by itself.
type once struct{ *redis.Cmd }

// NoRetry is what go-redis asks.
func (once) NoRetry() bool { return true }

const (
	// repeats bounds how often a script with a not-after time is sent again.
	repeats = 5
	// redirectFor bounds for how long a script is sent again that the nodes of a Redis
	// Cluster send from one to the other: after a slot moved, a busy cluster takes some
	// seconds to agree on its owner.
	redirectFor = 10 * time.Second
	// redirectPause is the longest pause meanwhile.
	redirectPause = 500 * time.Millisecond
)

// run executes one script. One without a not-after time go-redis may repeat by
// itself. One with such a time is repeated here, and only when the copy sent
// before can't be carried out any more: a copy that lay in a socket would undo
// what was done since.
func (s *Store) run(ctx context.Context, c call) *redis.Cmd {
	if c.notAfter > 0 {
		return named(s.repeat(ctx, c, s.send(ctx, c)))
	}
	if s.waits(c) {
		return named(s.send(ctx, c))
	}
	cmd := s.scripts[c.script].Run(ctx, s.rdb, c.keys, c.args...)
	if unknown(cmd.Err()) {
		s.Relearn(ctx)
	}
	return named(cmd)
}

// Relearn asks a Redis Cluster which of its servers holds what. The client asks
// by itself once a minute, and when a server says that a slot moved; one that is
// dead doesn't say so.
func (s *Store) Relearn(ctx context.Context) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// send executes a script once, by its hash or, where Redis doesn't know that, by
// its text.
func (s *Store) send(ctx context.Context, c call) *redis.Cmd {
	cmd := s.sendAs(ctx, c, false)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = s.sendAs(ctx, c, true)
	}
	return cmd
}

func (s *Store) sendAs(ctx context.Context, c call, text bool) *redis.Cmd {
	cmd := s.command(ctx, c, text)
	if !s.waits(c) {
		_ = s.rdb.Process(ctx, once{cmd}) // the command carries its own error
		return cmd
	}
	calls, cmds := []call{c}, []*redis.Cmd{cmd}
	for _, p := range s.pipelines(ctx, calls, cmds) {
		s.exec(ctx, p, calls, cmds)
	}
	return cmd
}

func (s *Store) command(ctx context.Context, c call, text bool) *redis.Cmd {
	args := make([]any, 3, 3+len(c.keys)+len(c.args))
	args[0], args[1], args[2] = "evalsha", s.scripts[c.script].Hash(), len(c.keys)
	if text {
		args[0], args[1] = "eval", s.scripts[c.script].text
	}
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// repeat sends a script again while its last answer leaves room for that.
func (s *Store) repeat(ctx context.Context, c call, last *redis.Cmd) *redis.Cmd {
	began, pause := time.Now(), 20*time.Millisecond
	for tries := 0; tries < repeats || redirected(last.Err()) && time.Since(began) < redirectFor; tries++ {
		note(ctx, last.Err())
		switch err := last.Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			last = s.send(ctx, c)
			continue
		case unsent(err):
			s.Relearn(ctx)
			if !retry.Sleep(ctx, pause) {
				return last
			}
			if pause *= 3; redirected(err) {
				pause = min(pause, redirectPause)
			}
		case unknown(err):
			s.Relearn(ctx)
			if !s.awaitExpiry(ctx, c) {
				return last
			}
		default:
			return last
		}
		notAfter, err := s.NotAfter(ctx)
		if err != nil {
			return last
		}
		next, wanted := c.renewed(notAfter)
		if !wanted {
			return last
		}
		c = next
		last = s.send(ctx, c)
	}
	note(ctx, last.Err())
	return last
}

// unsent says that a script was certainly not executed, and may be soon: no
// connection was had, or the server said that it can't right now.
func unsent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return redirected(err) || hasPrefix(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY")
}

// redirected says that a node of a Redis Cluster doesn't serve the slot of a script. The
// client follows by itself, but not in a pipeline with WAIT, and a few times at most.
func redirected(err error) bool { return hasPrefix(err, "MOVED", "ASK", "TRYAGAIN") }

func hasPrefix(err error, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return redis.HasErrorPrefix(err, p) })
}

// unknown says that a script may have been executed, or may be yet, and that the
// client is still open.
func unknown(err error) bool {
	var answered redis.Error
	return err != nil && !errors.As(err, &answered) && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, task.ErrReplicas)
}

// Unknown reports whether a call that ended so may have been carried out, or may be
// yet: its answer did not come.
func Unknown(err error) bool {
	return unknown(err) && !unsent(err) && !errors.Is(err, ErrLate) && !errors.Is(err, errOlder) && !errors.Is(err, task.ErrRedisFull)
}

// awaitExpiry waits until a copy of the call does nothing any more, and reports
// whether it could. The server itself must say so: the estimate of Redis's clock
// may be of one that another took over from, or of another one of a Redis Cluster.
func (s *Store) awaitExpiry(ctx context.Context, c call) bool {
	end, ok := c.args[c.notAfter].(int64)
	now, err := s.Now(ctx)
	for range 3 {
		left := time.Duration(end-now+1) * time.Millisecond
		if !ok || err != nil || !retry.Sleep(ctx, min(left, callLife)) {
			return false
		}
		if now, err = s.clockOf(ctx, c.keys[0]); err == nil && now > end {
			s.ForgetClock()
			return true
		}
	}
	return false
}

// runAll executes scripts of several shards in one pipeline. What could not be
// carried out there is executed alone: inside a pipeline a script that Redis
// doesn't know can't be sent by its text instead. Once that was in vain for one,
// the others keep their errors: together they would take as long as there are
// shards.
func (s *Store) runAll(ctx context.Context, calls []call) []*redis.Cmd {
	if len(calls) == 1 {
		return []*redis.Cmd{s.run(ctx, calls[0])}
	}
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = s.command(ctx, c, false)
	}
	var others sync.WaitGroup
	all := s.pipelines(ctx, calls, cmds)
	for i, p := range all {
		if i < len(all)-1 {
			others.Go(func() { s.exec(ctx, p, calls, cmds) })
		} else {
			s.exec(ctx, p, calls, cmds)
		}
	}
	others.Wait()
	vain := false
	for i, c := range calls {
		if c.notAfter > 0 {
			note(ctx, cmds[i].Err())
		}
		switch {
		case c.notAfter > 0 && !vain:
			cmds[i] = s.repeat(ctx, c, cmds[i])
			vain = unsent(cmds[i].Err()) || unknown(cmds[i].Err())
		case redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT"):
			cmds[i] = s.run(ctx, c)
		}
		named(cmds[i])
	}
	return cmds
}

// MaxBatch is the most tasks one script takes: Lua's unpack fails at about
// 8,000 values.
const MaxBatch = 1000
