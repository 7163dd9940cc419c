//go:build chaos

// Command crasher is a scanner that kills itself at one step of its work in the topic orders. That
// is before or after the n-th execution of one of its scripts. DUEFLEET_TEST_CRASH names the step.
// Examples are "after claim 20", and "after claim 20 2ms", which is two milliseconds later, in the
// middle of publishing.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fleet/member"
)

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	point, err := newCrashPoint(os.Getenv("DUEFLEET_TEST_CRASH"))
	if err != nil {
		return err
	}
	return member.RunWith(ctx, path, os.Environ(), slog.New(slog.NewTextHandler(os.Stderr, nil)),
		func(rdb redis.UniversalClient) { faults.Around(rdb, point.around) })
}

// crashPoint kills this process at its step.
type crashPoint struct {
	after  bool
	claim  bool   // only claims that return tasks count
	script string // its text
	later  time.Duration
	left   atomic.Int64 // executions left until the crash
}

func newCrashPoint(text string) (*crashPoint, error) {
	var when, script, later string
	var number int64
	if n, _ := fmt.Sscan(text, &when, &script, &number, &later); n < 3 {
		return nil, fmt.Errorf("crash point %q: want before or after, a script, a number and perhaps a delay", text)
	}
	source, err := shard.Script(script)
	if err != nil {
		return nil, err
	}
	p := &crashPoint{after: when == "after", claim: script == "claim", script: source}
	p.left.Store(number)
	if later != "" {
		p.later, err = time.ParseDuration(later)
	}
	return p, err
}

// around takes the place of a request. It doesn't send the commands after the step.
func (p *crashPoint) around(ctx context.Context, r faults.Request) error {
	if r.Pipelined {
		return p.pipeline(ctx, r)
	}
	cmd := r.Commands[0]
	mine := p.mine(cmd)
	if mine && !p.after && p.left.Add(-1) == 0 {
		p.crash()
	}
	err := r.Send(ctx)
	if mine && p.after && err == nil && (!p.claim || !empty(cmd)) && p.left.Add(-1) == 0 {
		if p.later > 0 {
			time.AfterFunc(p.later, p.crash)
			return err
		}
		p.crash()
	}
	return err
}

func (p *crashPoint) pipeline(ctx context.Context, r faults.Request) error {
	for i, cmd := range r.Commands {
		if !p.mine(cmd) || p.left.Add(-1) != 0 {
			continue
		}
		if p.after {
			i++
		}
		if r.Commands = r.Commands[:i]; i > 0 {
			_ = r.Send(ctx)
		}
		p.crash()
	}
	return r.Send(ctx)
}

// mine reports whether a command runs the script for the topic orders. Other topics are idle, and
// a scanner that starts claims in some of them.
func (p *crashPoint) mine(cmd redis.Cmder) bool {
	if !faults.Runs(cmd, p.script) {
		return false
	}
	key, _ := cmd.Args()[3].(string) // behind EVALSHA, the script and the number of keys
	return strings.Contains(key, "{orders")
}

// empty reports whether a claim returned no tasks.
func empty(cmd redis.Cmder) bool {
	c, ok := cmd.(*redis.Cmd)
	if !ok || len(cmd.Args()) < 4 {
		return true
	}
	answer, err := c.Slice()
	return err == nil && len(answer) == 5
}

func (p *crashPoint) crash() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // wait for the signal
}
