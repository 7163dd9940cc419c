// Package faults lets a test watch, delay, refuse and lose what a client of Redis sends. It
// also puts a bad network in front of a server.
package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ErrLost is the error of a command whose reply Lose lost.
var ErrLost = errors.New("the reply is lost")

// Request is one request of a client: a command, or a pipeline of commands.
type Request struct {
	// Commands may be replaced by other commands before Send.
	Commands  []redis.Cmder
	Pipelined bool

	send func(context.Context, []redis.Cmder) error
}

// Send sends the commands and waits for the reply. It can be called several times.
func (r Request) Send(ctx context.Context) error { return r.send(ctx, r.Commands) }

// Fail gives all commands of the request an error, and returns it.
func (r Request) Fail(err error) error {
	for _, cmd := range r.Commands {
		cmd.SetErr(err)
	}
	return err
}

// Around calls do in place of each request that rdb sends from now on. A new connection
// begins with a pipeline of its own.
func Around(rdb redis.UniversalClient, do func(context.Context, Request) error) {
	rdb.AddHook(hook(do))
}

// Before calls do before each request that rdb sends from now on.
func Before(rdb redis.UniversalClient, do func(Request)) {
	Around(rdb, func(ctx context.Context, r Request) error {
		do(r)
		return r.Send(ctx)
	})
}

// After calls do after the reply to each request that rdb sends from now on.
func After(rdb redis.UniversalClient, do func(Request)) {
	Around(rdb, func(ctx context.Context, r Request) error {
		err := r.Send(ctx)
		do(r)
		return err
	})
}

// Hang blocks every request from now on that has part in its first command, until letGo is
// called or the test ends. caught receives when a request is blocked.
func Hang(t testing.TB, rdb redis.UniversalClient, part string) (caught <-chan struct{}, letGo func()) {
	signals, free := make(chan struct{}, 100), make(chan struct{})
	letGo = sync.OnceFunc(func() { close(free) })
	t.Cleanup(letGo)
	Before(rdb, func(r Request) {
		if strings.Contains(fmt.Sprint(r.Commands[0].Args()...), part) {
			signals <- struct{}{}
			<-free
		}
	})
	return signals, letGo
}

// Counts counts the commands that a client sends, pipelines left out, by their names.
type Counts struct {
	mu sync.Mutex
	n  map[string]int
}

// Count counts the commands that rdb sends from now on.
func Count(rdb redis.UniversalClient) *Counts {
	c := &Counts{n: map[string]int{}}
	Before(rdb, func(r Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !r.Pipelined {
			c.n[r.Commands[0].Name()]++
		}
	})
	return c
}

// Of returns how many commands with one of the names were sent.
func (c *Counts) Of(names ...string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		n += c.n[name]
	}
	return n
}

// Forget starts the counts again at 0.
func (c *Counts) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.n)
}

// Runs reports whether a command executes the script with a text, by its hash.
func Runs(cmd redis.Cmder, text string) bool {
	args := cmd.Args()
	return len(args) > 1 && args[1] == redis.NewScript(text).Hash()
}

// Steps calls do before request at, counted from 0, of those that rdb sends from now on.
// It makes requests one after the other until do has returned.
type Steps struct {
	mu   sync.Mutex
	at   int
	seen int
	do   func()
}

// NewSteps watches the requests of rdb.
func NewSteps(rdb redis.UniversalClient, at int, do func()) *Steps {
	s := &Steps{at: at, do: do}
	Before(rdb, func(Request) { s.step() })
	return s
}

func (s *Steps) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == s.at {
		s.do()
	}
	s.seen++
}

// Again makes do also be called before the next request. Only do may call it.
func (s *Steps) Again() { s.at++ }

// Reached reports whether do was called.
func (s *Steps) Reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen > s.at
}

// Die makes rdb fail with err at request at, counted from 0, and at all later ones. Redis
// never gets these requests.
func Die(rdb redis.UniversalClient, at int, err error) {
	var seen atomic.Int64
	Around(rdb, func(ctx context.Context, r Request) error {
		if seen.Add(1) > int64(at) {
			return r.Fail(err)
		}
		return r.Send(ctx)
	})
}

// Lose executes the next n commands of rdb that which selects, and loses their replies:
// each command ends with ErrLost. which gets the command with its reply, and never gets
// commands of a pipeline. over reports whether which selected one more.
func Lose(rdb redis.UniversalClient, n int, which func(redis.Cmder) bool) (over func() bool) {
	var left atomic.Int64
	left.Store(int64(n))
	Around(rdb, func(ctx context.Context, r Request) error {
		err := r.Send(ctx)
		if r.Pipelined || !which(r.Commands[0]) || left.Add(-1) < 0 {
			return err
		}
		return r.Fail(ErrLost)
	})
	return func() bool { return left.Load() < 0 }
}

// hook implements redis.Hook.
type hook func(context.Context, Request) error

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		send := func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) }
		return h(ctx, Request{Commands: []redis.Cmder{cmd}, send: send})
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, Request{Commands: cmds, Pipelined: true, send: next})
	}
}
