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

// script is one script. Redis knows it by the hash of its text.
type script struct {
	*redis.Script
	text string
}

// call is one execution of a script on one shard.
type call struct {
	script string
	keys   []string
	args   []any
	// notAfter is the index in args of a Redis time in ms, after which the script does
	// nothing. 0: the call has no such time and may be repeated at any time.
	notAfter int
	// fence is the hash that notes how many replicas were waited for, if replicas must
	// have what this call writes. It is the shard's fence, or the history of an ID.
	fence string
	// renew returns the arguments with a new not-after time, without the entries that
	// nobody waits for any more; nil if none is left. A nil renew replaces notAfter
	// alone.
	renew func(notAfter int64) []any
}

// renewed returns the call with a new not-after time. It returns false if nobody waits
// for the call any more.
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

// NoRetry tells go-redis not to repeat the command.
func (once) NoRetry() bool { return true }

const (
	// repeats bounds how often a script with a not-after time is sent again.
	repeats = 5
	// redirectFor bounds how long a script is sent again while the nodes of a Redis
	// Cluster redirect it to each other. After a slot moved, a busy cluster takes some
	// seconds to agree on its owner.
	redirectFor = 10 * time.Second
	// redirectPause is the longest pause between these tries.
	redirectPause = 500 * time.Millisecond
)

// run executes one script. go-redis may repeat a script without a not-after time by
// itself. A script with such a time is repeated here, once the copy sent before can't be
// executed any more. Otherwise a copy held up in a socket would undo later changes.
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

// Relearn asks a Redis Cluster which of its servers hold which slots. The client asks by
// itself only once a minute, and when a server says that a slot moved. A dead server
// doesn't say so.
func (s *Store) Relearn(ctx context.Context) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// send executes a script once: by its hash or, if Redis doesn't know the hash, by its
// text.
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

// repeat sends a call again as long as its last answer allows it. That is so if Redis
// didn't know the script, if the call was not executed, or if its fate is unknown.
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

// unsent reports whether a script was certainly not executed, but may be soon: no
// connection could be made, or the server refused for now.
func unsent(err error) bool {
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

// unknown reports whether a script may have been executed, or may still be, and the
// client is open.
func unknown(err error) bool {
	var answered redis.Error
	return err != nil && !errors.As(err, &answered) && !errors.Is(err, redis.ErrClosed) &&
		!errors.Is(err, task.ErrReplicas)
}

// Unknown reports whether a call that ended with err may have been carried out, or may
// still be: its answer did not come.
func Unknown(err error) bool {
	return unknown(err) && !unsent(err) && !errors.Is(err, ErrLate) && !errors.Is(err, errOlder) &&
		!errors.Is(err, task.ErrRedisFull)
}

// awaitExpiry waits until no copy of the call can do anything any more, and reports
// whether it succeeded. It asks the server of the call's keys for the time. The estimate
// of Redis's clock may come from a server that was replaced, or from another server of a
// Redis Cluster.
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

// runAll executes scripts of several shards in one pipeline. A call that the pipeline
// could not carry out is executed alone. Inside a pipeline, a script that Redis doesn't
// know can't be sent by its text instead. Once such a repeat has failed, the other calls
// keep their errors. To repeat each of them would take too long.
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
