package luascript

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// ReplicaPatience is how long WAIT waits for replicas. It must be less than the client's
// read timeout (5 s by default): after that the reply of WAIT would count as lost.
const ReplicaPatience = time.Second

// MaxReplicas is the largest number of replicas to wait for.
const MaxReplicas = 10

// AwaitReplicas sets the number of replicas to wait for. Then every call that stores,
// moves or removes tasks returns when n replicas have its writes (WAIT), or with a
// *ReplicasError after a second. Call it before the first script. The default is 0.
//
// A failover to one of these replicas loses no acknowledged write. But Redis may choose a
// replica that has less: WAIT makes losses unlikely, not impossible
// (https://redis.io/docs/latest/commands/wait/).
func (c *Client) AwaitReplicas(n int) error {
	if n < 0 || n > MaxReplicas {
		return fmt.Errorf("MinReplicas must be 0 to %d; got %d", MaxReplicas, n)
	}
	c.replicas = n
	return nil
}

// ReplicasError says that the master has executed a call, but too few replicas have it, so a
// failover now would lose it. It matches task.ErrReplicas.
type ReplicasError struct {
	// Have is the number of replicas that have it, Want the number required.
	Have, Want int
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%v: %d of %d replicas have the change; it is lost if the master fails now", task.ErrReplicas,
		e.Have, e.Want)
}

// Unwrap makes the error match task.ErrReplicas.
func (e *ReplicasError) Unwrap() error { return task.ErrReplicas }

// pipeline is a set of calls that one client sends together.
type pipeline struct {
	rdb interface{ Pipeline() redis.Pipeliner }
	// replicasKey is a Call.ReplicasKey on the server whose replicas are waited for; ""
	// for none.
	replicasKey string
	// which are the indexes of the calls.
	which []int
}

// pipelines groups calls by how they are sent. Calls that wait for replicas are grouped
// by the server of their key, because WAIT covers the writes of one connection. All
// others go together.
func (c *Client) pipelines(ctx context.Context, calls []Call, cmds []*redis.Cmd) []*pipeline {
	plain := &pipeline{rdb: c.server.Client(ctx)}
	by := map[*redis.Client]*pipeline{}
	var all []*pipeline
	for i := range calls {
		p := plain
		if key := calls[i].ReplicasKey; c.waits(&calls[i]) {
			server, err := c.master(ctx, key)
			if err != nil {
				cmds[i].SetErr(err)
				continue
			}
			if p = by[server]; p == nil {
				p = &pipeline{rdb: server, replicasKey: key}
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

// master returns the client of the server that holds a key.
func (c *Client) master(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := c.server.Client(ctx).(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("can't wait for replicas with a client of type %T", c.server.Known())
}

// exec sends a pipeline, and waits for replicas if p.replicasKey is set. WAIT covers the writes
// of this connection, and everything before them. A script that finds its work done
// writes nothing, so exec writes to that hash before WAIT.
func (c *Client) exec(ctx context.Context, p *pipeline, calls []Call, cmds []*redis.Cmd) {
	pipe := p.rdb.Pipeline()
	for _, i := range p.which {
		if calls[i].Deadline > 0 {
			_ = pipe.Process(ctx, once{cmds[i]})
		} else {
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if p.replicasKey == "" {
		_, _ = pipe.Exec(ctx) // each command carries its own error
		return
	}
	pipe.HSet(ctx, p.replicasKey, "waited", c.replicas)
	wait := redis.NewIntCmd(ctx, "wait", c.replicas, ReplicaPatience.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx)
	have, err := wait.Result()
	if err == nil && int(have) < c.replicas {
		err = &ReplicasError{int(have), c.replicas}
	}
	for _, i := range p.which {
		if err != nil && cmds[i].Err() == nil {
			cmds[i].SetErr(err)
		}
	}
}
