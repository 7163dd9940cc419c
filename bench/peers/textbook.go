package peers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/bench/harness"
)

const (
	textbookEvery  = 5 * time.Second
	textbookBatch  = 1000
	textbookShards = 4
	textbookPause  = 100 * time.Millisecond
	threads        = 4
)

// textbook returns the three designs that tutorials show.
func textbook() []Peer {
	return []Peer{
		{
			Name: "textbook: 1,000 every 5 s from one sorted set", members: 1,
			connect: sortedSets(1), work: periodic(func(context.Context, *redis.Client) (int, error) { return 0, nil }),
		},
		{
			Name: "textbook: INCR mod 4 every 5 s, 1,000 from that sorted set", members: 3,
			connect: sortedSets(textbookShards), work: periodic(func(ctx context.Context, rdb *redis.Client) (int, error) {
				ticket, err := rdb.Incr(ctx, "textbook:ticket").Result()
				return int(ticket % textbookShards), err
			}),
		},
		FourThreads(),
	}
}

// FourThreads returns the textbook design that takes due tasks one by one.
func FourThreads() Peer {
	return Peer{
		Name: "textbook: four threads, one task a Lua call, 100 ms asleep when idle", members: 1,
		connect: sortedSets(1), work: popping,
	}
}

func dueKey(n int) string     { return fmt.Sprintf("textbook:due:%d", n) }
func payloadKey(n int) string { return fmt.Sprintf("textbook:payload:%d", n) }

// sets stores tasks in sorted sets and hashes, as tutorials show.
type sets struct {
	*redis.Client
	shards int
}

func sortedSets(shards int) func(context.Context, place) (client, error) {
	return func(_ context.Context, p place) (client, error) {
		return sets{redis.NewClient(&redis.Options{Addr: p.store}), shards}, nil
	}
}

// Schedule stores tasks with a pipeline of ZADD and HSET.
func (s sets) Schedule(ctx context.Context, tasks []harness.Task) error {
	pipe := s.Pipeline()
	for _, t := range tasks {
		n := t.Number % s.shards
		pipe.HSet(ctx, payloadKey(n), t.ID(), t.Payload)
		pipe.ZAdd(ctx, dueKey(n), redis.Z{Score: float64(t.Due.UnixMilli()), Member: t.ID()})
	}
	_, err := pipe.Exec(ctx)
	return err
}

// periodic takes a batch every 5 s from the set that choose returns, publishes it, and
// then removes it.
func periodic(choose func(context.Context, *redis.Client) (int, error)) func(context.Context, place, func()) error {
	return func(ctx context.Context, p place, ready func()) error {
		rdb := redis.NewClient(&redis.Options{Addr: p.store})
		defer rdb.Close()
		publisher, err := harness.NewPublisher(p.broker, p.exchange)
		if err != nil {
			return err
		}
		defer publisher.Close()
		ready()
		for {
			n, err := choose(ctx, rdb)
			if err != nil {
				return err
			}
			if err := takeBatch(ctx, rdb, publisher, n); err != nil {
				return err
			}
			if err := harness.Sleep(ctx, textbookEvery); err != nil {
				return err
			}
		}
	}
}

func takeBatch(ctx context.Context, rdb *redis.Client, publisher *harness.Publisher, n int) error {
	ids, err := rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: dueKey(n), ByScore: true, Start: "0", Stop: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: textbookBatch,
	}).Result()
	if err != nil || len(ids) == 0 {
		return err
	}
	payloads, err := rdb.HMGet(ctx, payloadKey(n), ids...).Result()
	if err != nil {
		return err
	}
	var messages []amqp.Publishing
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
		if body, ok := payloads[i].(string); ok { // otherwise another member was faster
			messages = append(messages, harness.Message(id, []byte(body)))
		}
	}
	if err := publisher.Publish(ctx, messages...); err != nil {
		return err
	}
	pipe := rdb.Pipeline()
	pipe.ZRem(ctx, dueKey(n), members...)
	pipe.HDel(ctx, payloadKey(n), ids...)
	_, err = pipe.Exec(ctx)
	return err
}

const popScript = `
local id = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1)[1]
if not id then return false end
local payload = redis.call('HGET', KEYS[2], id)
redis.call('ZREM', KEYS[1], id)
redis.call('HDEL', KEYS[2], id)
return {id, payload}`

// popping runs four threads that take one task at a time.
func popping(ctx context.Context, p place, ready func()) error {
	rdb := redis.NewClient(&redis.Options{Addr: p.store})
	defer rdb.Close()
	publisher, err := harness.NewPublisher(p.broker, p.exchange)
	if err != nil {
		return err
	}
	defer publisher.Close()
	script := redis.NewScript(popScript)
	ready()
	g, ctx := errgroup.WithContext(ctx)
	for range threads {
		g.Go(func() error {
			for {
				if err := pop(ctx, rdb, script, publisher); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// pop publishes one task, or sleeps if none is due.
func pop(ctx context.Context, rdb *redis.Client, script *redis.Script, publisher *harness.Publisher) error {
	reply, err := script.Run(ctx, rdb, []string{dueKey(0), payloadKey(0)}, time.Now().UnixMilli()).StringSlice()
	if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return harness.Sleep(ctx, textbookPause)
	}
	if err != nil {
		return err
	}
	return publisher.Publish(ctx, harness.Message(reply[0], []byte(reply[1])))
}
