package shard

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// commandsAtOnce bounds the commands of one pipeline, so that Redis serves others in between.
const commandsAtOnce = 200

// pipelined adds a command for each key and sends them in pipelines. Each pipeline is for one node,
// and the nodes are asked at the same time. So a node that hangs until ctx ends costs no other
// its answers. The commands are in the order of the keys, and each has its own error.
func pipelined[C redis.Cmder](ctx context.Context, s *Store, keys []string,
	add func(pipe redis.Pipeliner, key string) C) []C {
	rdb := s.Client(ctx)
	nodes := map[string][]int{}
	for i, key := range keys {
		node := s.nodeOf(ctx, key)
		nodes[node] = append(nodes[node], i)
	}
	commands := make([]C, len(keys))
	var asking sync.WaitGroup
	for _, all := range nodes {
		asking.Go(func() {
			for some := range slices.Chunk(all, commandsAtOnce) {
				pipe := rdb.Pipeline()
				for _, i := range some {
					commands[i] = add(pipe, keys[i])
				}
				exec(ctx, pipe)
			}
		})
	}
	asking.Wait()
	return commands
}

// exec sends a pipeline. Afterwards each command has its own error. If Redis lets no connection log
// in, go-redis gives the error to no command, and only returns it.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	commands, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range commands {
		c.SetErr(err)
	}
}
