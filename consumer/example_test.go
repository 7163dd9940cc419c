package consumer_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/task"
)

func ExampleNew() {
	c, err := consumer.New(consumer.Config{
		URLs:    []string{"amqp://guest:guest@127.0.0.1:5672/"},
		Queue:   "orders.due",
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}},
		Handler: remind,
		Policy:  consumer.Fixed(time.Minute, 5),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A Consumer has one queue. Several of them share a Redis client and a Registerer, and the
// group stops all if one ends with an error.
func Example_severalQueues() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for queue, handler := range map[string]consumer.Handler{"orders.due": remind, "bills.due": bill} {
		c, err := consumer.New(consumer.Config{
			URLs: []string{"amqp://guest:guest@127.0.0.1:5672/"}, Queue: queue,
			Redis: rdb, Handler: handler, Registerer: prometheus.DefaultRegisterer,
		})
		if err != nil {
			log.Fatal(err)
		}
		group.Go(func() error { return c.Run(ctx) })
	}
	if err := group.Wait(); err != nil {
		log.Fatal(err)
	}
}

func ExampleMux() {
	mux := consumer.Mux{Topics: map[string]consumer.Handler{"orders": remind, "bills": bill}}
	// consumer.Config{Handler: mux.Handler, ...}

	ctx := context.Background()
	for _, topic := range []string{"orders", "bills", "mails"} {
		err := mux.Handler(ctx, task.NewDelivery(task.Task{Topic: topic, ID: "4711"}, nil))
		if err != nil {
			fmt.Println("parked:", consumer.IsParked(err))
			fmt.Println(err)
		}
	}
	// Output:
	// remind of 4711
	// bill 4711
	// parked: true
	// no handler for topic mails: consumer.Mux has bills, orders, and no Fallback; add a handler, then replay the task
}

func ExampleJSON() {
	type order struct {
		Number int `json:"number"`
	}
	handler := consumer.JSON(func(_ context.Context, d task.Delivery, o order) error {
		fmt.Println("order", o.Number, "of task", d.ID)
		return nil
	})
	// consumer.Config{Handler: handler, ...}

	ctx := context.Background()
	for _, payload := range []string{`{"number":4711}`, `{"number":"secret"}`} {
		err := handler(ctx, task.NewDelivery(task.Task{Topic: "orders", ID: "o-1", Payload: []byte(payload)}, nil))
		if err != nil {
			fmt.Println("parked:", consumer.IsParked(err))
			fmt.Println(err)
		}
	}
	// Output:
	// order 4711 of task o-1
	// parked: true
	// payload of 19 bytes: field number doesn't fit type int, at byte 18
}

func remind(_ context.Context, d task.Delivery) error {
	fmt.Println("remind of", d.ID)
	return nil
}

func bill(_ context.Context, d task.Delivery) error {
	fmt.Println("bill", d.ID)
	return nil
}
