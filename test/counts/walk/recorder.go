package main

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// measured is the output of one operation, besides its coverage.
type measured struct {
	Depth int `json:"depth"`
}

// recorder records operations. As a hook of clients it measures stacks.
type recorder struct {
	dir    string
	depths map[string]measured

	mu      sync.Mutex
	deepest int
}

// record executes an operation, and writes its coverage into a folder with its name.
func (r *recorder) record(name string, operation func() error) error {
	r.mu.Lock()
	r.deepest = 0
	r.mu.Unlock()
	if err := clearCoverage(); err != nil {
		return err
	}
	if err := operation(); err != nil {
		return err
	}
	if err := writeCoverage(r.dir + "/" + name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name != "idle" {
		r.depths[name] = measured{Depth: r.deepest}
	}
	return nil
}

// DialHook implements redis.Hook.
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.look(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.look(cmds...)
		return next(ctx, cmds)
	}
}

// look measures the stack if a command is a script.
func (r *recorder) look(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "evalsha") {
			stacks := make([]byte, 1<<22)
			depth := depthOf(string(stacks[:runtime.Stack(stacks, true)]))
			r.mu.Lock()
			r.deepest = max(r.deepest, depth)
			r.mu.Unlock()
			return
		}
	}
}

// depthOf counts the product's functions on the first stack, which is the caller's. If the
// function schedule is on another stack, it has handed over, and that stack counts too.
func depthOf(stacks string) int {
	all := strings.Split(stacks, "\n\n")
	depth := functionsOn(all[0])
	for _, other := range all[1:] {
		if strings.Contains(other, "\nmain.schedule(") {
			depth += functionsOn(other)
		}
	}
	return depth
}

func functionsOn(stack string) (n int) {
	const module = "github.com/duefleet/duefleet/"
	for line := range strings.Lines(stack) {
		if strings.HasPrefix(line, module) && !strings.HasPrefix(line, module+"test/") {
			n++
		}
	}
	return n
}
