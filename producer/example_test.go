package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	client, err := producer.New(producer.Config{Redis: rdb, Prefix: "duefleet"})
	if err != nil {
		log.Fatal(err)
	}
	_ = client
}

func ExampleClient_Close() {
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // closes the connections it made itself
}

func ExampleClient_Schedule() {
	client := connect()
	due, err := client.Schedule(context.Background(), producer.Request{
		Topic:       "orders",
		ID:          "o-4711/remind",
		When:        producer.In(30 * time.Minute),
		Payload:     []byte(`{"order":4711}`),
		ContentType: "application/json",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the reminder is due at", due)
}

func ExampleRequest_SetJSON() {
	type order struct {
		Number int `json:"number"`
	}
	request := producer.Request{Topic: "orders", ID: "o-4711/remind", When: producer.In(30 * time.Minute)}
	if err := request.SetJSON(order{Number: 4711}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s\n", request.Payload, request.ContentType)
	// client.Schedule(ctx, request)

	// Output:
	// {"number":4711} is application/json
}

func ExampleClient_Schedule_ifAbsent() {
	client := connect()
	_, err := client.Schedule(context.Background(), producer.Request{
		Topic: "orders", ID: "o-4711/remind", When: producer.In(time.Hour), IfAbsent: true,
	})
	if errors.Is(err, task.ErrExists) {
		fmt.Println("a reminder is pending already")
	}
}

func ExampleClient_ScheduleMany() {
	client := connect()
	requests := []producer.Request{
		{Topic: "orders", ID: "o-1", When: producer.In(time.Minute)},
		{Topic: "orders", ID: "o-2", When: producer.In(2 * time.Minute)},
	}
	for i, r := range client.ScheduleMany(context.Background(), requests) {
		if r.Err != nil {
			fmt.Println(requests[i].ID, "is not scheduled:", r.Err)
		}
	}
}

func ExampleClient_Cancel() {
	client := connect()
	err := client.Cancel(context.Background(), "orders", "o-4711/remind")
	if errors.Is(err, task.ErrNotFound) {
		fmt.Println("delivered or cancelled before")
	}
}

func ExampleClient_Reschedule() {
	client := connect()
	when := producer.At(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	due, err := client.Reschedule(context.Background(), "orders", "o-4711/remind", when)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("now due at", due)
}

func ExampleClient_Get() {
	client := connect()
	stored, err := client.Get(context.Background(), "orders", "o-4711/remind")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.State, "until", stored.NextAttempt)
}

func ExampleIn() {
	inAMinute := producer.Request{Topic: "orders", ID: "o-1", When: producer.In(time.Minute)}
	_ = inAMinute
}

func ExampleAt() {
	atMidnight := producer.Request{
		Topic: "orders", ID: "o-1", When: producer.At(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	_ = atMidnight
}

func connect() *producer.Client {
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return client
}
