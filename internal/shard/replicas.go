package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// replicaPatience is how long the replicas have to get what was written. It has to
// be less than the client's read timeout, 5 s unless set, after which the reply of
// WAIT would be taken for lost.
const replicaPatience = time.Second

// MaxReplicas is the most replicas that can be waited for.
const MaxReplicas = 10

// AwaitReplicas makes every call that stores, moves or removes tasks return only
// once so many replicas have what it wrote (WAIT), or with a *ReplicasError after
// a second. It is to be called before the store is used; 0, which is how a store
// begins, waits for none.
//
// A failover to one of these replicas then loses nothing that was acknowledged.
// Redis may still prefer a replica that has less: WAIT makes losses unlikely, not
// impossible (https://redis.io/docs/latest/commands/wait/).
func (s *Store) AwaitReplicas(n int) error {
	if n < 0 || n > MaxReplicas {
		return fmt.Errorf("MinReplicas must be 0 to %d; got %d", MaxReplicas, n)
	}
	s.replicas = n
	return nil
}

// ReplicasError says that a call was carried out by the master, and that too few
// replicas have it: a failover now would lose it. It is task.ErrReplicas.
type ReplicasError struct {
	// Have it, of those that Want is about.
	Have, Want int
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%v: %d of %d have it; the master has, and it is lost if that fails now", task.ErrReplicas, e.Have, e.Want)
}

// Unwrap is for errors.Is.
func (e *ReplicasError) Unwrap() error { return task.ErrReplicas }

// waits says that replicas are to have what a call writes.
func (s *Store) waits(c call) bool { return s.replicas > 0 && c.fence != "" }

// pipeline is calls that one client sends together.
type pipeline struct {
	rdb interface{ Pipeline() redis.Pipeliner }
	// fence of one of the shards, if replicas of their server are waited for.
	fence string
	// which of the calls these are.
	which []int
}

// pipelines sorts calls by how they are sent: together, but those that wait for
// replicas by the server that holds their shard, as WAIT is about the writes of
// one connection.
func (s *Store) pipelines(ctx context.Context, calls []call, cmds []*redis.Cmd) []*pipeline {
	plain := &pipeline{rdb: s.rdb}
	by := map[*redis.Client]*pipeline{}
	var all []*pipeline
	for i, c := range calls {
		p := plain
		if s.waits(c) {
			server, err := s.server(ctx, c.fence)
			if err != nil {
				cmds[i].SetErr(err)
				continue
			}
			if p = by[server]; p == nil {
				p = &pipeline{rdb: server, fence: c.fence}
				by[server] = p
				all = append(all, p)
			}
		}
		p.which = append(p.which, i)
	}
	if len(plain.which) > 0 {
		all = append(all, plain)
	}
	return all
}

// server is the client of the server that holds a key.
func (s *Store) server(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("wait for replicas: not known how with a client of type %T", s.rdb)
}

// exec sends what is in a pipeline, and waits for the replicas if it is to. The
// write in front of WAIT is for scripts that find their work done: WAIT covers
// what this connection wrote, and everything before it.
func (s *Store) exec(ctx context.Context, p *pipeline, calls []call, cmds []*redis.Cmd) {
	pipe := p.rdb.Pipeline()
	for _, i := range p.which {
		if calls[i].notAfter > 0 {
			_ = pipe.Process(ctx, once{cmds[i]})
		} else {
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if p.fence == "" {
		_, _ = pipe.Exec(ctx) // each command carries its own error
		return
	}
	pipe.HSet(ctx, p.fence, "waited", s.replicas)
	wait := redis.NewIntCmd(ctx, "wait", s.replicas, replicaPatience.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx)
	have, err := wait.Result()
	if err == nil && int(have) < s.replicas {
		err = &ReplicasError{int(have), s.replicas}
	}
	for _, i := range p.which {
		if err != nil && cmds[i].Err() == nil {
			cmds[i].SetErr(err)
		}
	}
}
