package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/bench/harness"
)

const (
	asynqType = "orders"
	// handlers is the number of concurrent handlers in a member. It needs many, since
	// each waits for the confirm of its task.
	handlers = 100
	// callsAtATime is the number of concurrent calls, for clients with one task per call.
	callsAtATime = 16
)

// asynqPeer returns asynq as a peer that polls for due tasks at the interval. 0 means
// asynq's defaults: every 5 s for scheduled tasks, and every second for ready ones.
func asynqPeer(name string, interval time.Duration) Peer {
	return Peer{
		Name: name, members: 3,
		connect: func(_ context.Context, p place) (client, error) { return newAsynqClient(p), nil },
		work: func(ctx context.Context, p place, ready func()) error {
			return asynqServer(ctx, p, interval, ready)
		},
	}
}

type asynqClient struct{ *asynq.Client }

func newAsynqClient(p place) asynqClient {
	return asynqClient{asynq.NewClient(asynq.RedisClientOpt{Addr: p.store})}
}

// Schedule enqueues tasks one by one, with 16 concurrent calls.
func (c asynqClient) Schedule(ctx context.Context, tasks []harness.Task) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callsAtATime)
	for _, t := range tasks {
		g.Go(func() error {
			at := t.Due.Add(time.Second - 1).Truncate(time.Second)
			_, err := c.EnqueueContext(ctx, asynq.NewTask(asynqType, t.Payload), asynq.TaskID(t.ID()), asynq.ProcessAt(at))
			return err
		})
	}
	return g.Wait()
}

func asynqServer(ctx context.Context, p place, interval time.Duration, ready func()) error {
	publisher, err := harness.NewPublisher(p.broker, p.exchange)
	if err != nil {
		return err
	}
	defer publisher.Close()
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: p.store}, asynq.Config{
		Concurrency: handlers, LogLevel: asynq.WarnLevel,
		TaskCheckInterval: interval, DelayedTaskCheckInterval: interval,
	})
	handle := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		return publisher.Publish(ctx, harness.Message(t.ResultWriter().TaskID(), t.Payload()))
	})
	if err := server.Start(handle); err != nil {
		return fmt.Errorf("start asynq: %w", err)
	}
	ready()
	<-ctx.Done()
	server.Shutdown()
	return nil
}
