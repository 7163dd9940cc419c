// Command demo is a small application with duefleet, for the file compose.yaml in this
// folder's parent. The command produce schedules orders that are cancelled unless they
// are paid in time, and pays some of them. The command consume receives orders that fell
// due.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	topic = "orders"
	queue = "orders.due"
	// every is the pause between two orders.
	every = 100 * time.Millisecond
	// longest is the longest time for paying an order.
	longest = 30 * time.Second
	// report is how often consume prints a summary.
	report = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := map[string]func(context.Context) error{"produce": produce, "consume": consume}
	if len(os.Args) != 2 || work[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: demo produce | consume")
		os.Exit(2)
	}
	if err := work[os.Args[1]](ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// produce places an order every 100 ms; one in four is paid at once.
func produce(ctx context.Context) error {
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: strings.Split(os.Getenv("DUEFLEET_REDIS_ADDRS"), ",")},
		Prefix:  os.Getenv("DUEFLEET_REDIS_PREFIX"),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	run := time.Now().UnixMilli() // unique, so that a restart repeats no ID
	for n := 0; ; n++ {
		id := fmt.Sprintf("order-%d-%d", run, n)
		wait := time.Millisecond + time.Duration(rand.Int64N(int64(longest)))
		if _, err := client.Schedule(ctx, producer.Request{Topic: topic, ID: id, When: producer.In(wait),
			Payload: []byte(id)}); err != nil {
			return err
		}
		if n%4 == 0 {
			// An order that fell due meanwhile is already on its way to consume.
			if err := client.Cancel(ctx, topic, id); err != nil && !errors.Is(err, task.ErrNotFound) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// consume counts the arriving messages, and measures how late they are.
func consume(ctx context.Context) error {
	url, _, _ := strings.Cut(os.Getenv("DUEFLEET_RABBITMQ_URLS"), ",")
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	tick := time.NewTicker(report)
	defer tick.Stop()
	var seen tally
	for {
		select {
		case d, open := <-deliveries:
			if !open {
				return errors.New("the broker ended the subscription")
			}
			seen.add(d)
			if err := d.Ack(false); err != nil {
				return err
			}
		case <-tick.C:
			fmt.Println(seen.String())
		}
	}
}

// tally counts the messages so far. A real application would store the message-ids it has
// handled, since a repeat has the same message-id.
type tally struct {
	orders, repeats int
	late            time.Duration // the largest lateness, by this machine's clock
}

func (t *tally) add(d amqp.Delivery) {
	t.orders++
	if again, _ := d.Headers["x-duefleet-redelivered"].(bool); again {
		t.repeats++
	}
	if due, ok := d.Headers["x-duefleet-due"].(int64); ok {
		t.late = max(t.late, time.Since(time.UnixMilli(due)))
	}
}

func (t *tally) String() string {
	return fmt.Sprintf("%d orders were not paid in time and are cancelled; %d may be repeats; the latest came %s after "+
		"it was due",
		t.orders, t.repeats, t.late.Round(time.Millisecond))
}
