package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMessagesOfTheIntakeAreListed: tasks ls and parked ls show routing key, properties,
// and headers with their types as JSON, and nothing of them for a library's task. A replay
// keeps the message.
func TestMessagesOfTheIntakeAreListed(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.parkAs("orders", "library", "handler failed")
	body, err := amqpmsg.Encode(amqpmsg.Message{
		RoutingKey: "order.eu", Properties: amqpmsg.Properties{Type: "order", Priority: 4},
		Headers: map[string]any{"n": int16(7), "list": []any{true}}, Body: []byte("payload"),
	})
	if err != nil {
		t.Fatal(err)
	}
	entry := shard.Entry{ID: "message", When: task.Now(), Body: body}
	if r := router.New(o.store).Topic("orders").Schedule(t.Context(), []shard.Entry{entry})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	const want = `{"headers":{"list":{"type":"array","value":[{"type":"bool","value":true}]},"n":{"type":"int16","value":7}},` +
		`"properties":{"priority":4,"type":"order"},"routing_key":"order.eu"}`
	shown := func(args ...string) {
		t.Helper()
		code, text := o.call(append(args, "-o", "json")...)
		var all []map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil || code != cli.Done || len(all) == 0 {
			t.Fatalf("%q: code %d, %v: %s", args, code, err, text)
		}
		for _, one := range all {
			got, there := one["amqp"]
			if there != (one["id"] == "message") {
				t.Errorf("%q: %v", args, one)
			}
			if b, err := json.Marshal(got); there && (err != nil || string(b) != want) {
				t.Errorf("%q: got %s, want %s", args, b, want)
			}
		}
	}
	shown("tasks", "ls", "orders")
	o.wants(cli.Done, "message  waiting", "tasks", "ls", "orders")
	at := o.store.Topic("orders").Shard(0)
	b, err := at.Claim(t.Context(), shard.Claim{Claimant: "w", Request: "9", Limit: 10, Lease: time.Hour})
	if err != nil || len(b.Tasks) != 1 {
		t.Fatalf("claimed %+v, %v", b.Tasks, err)
	}
	park := shard.Release{Lease: shard.Lease{ID: "message", Token: b.Tasks[0].Token}, Park: true, Reason: "returned"}
	if n, err := at.Release(t.Context(), []shard.Release{park}); n != 1 || err != nil {
		t.Fatalf("parked %d, %v", n, err)
	}
	shown("parked", "ls", "orders")
	o.wants(cli.Done, "returned", "parked", "ls", "orders")
	o.wants(cli.Done, "replayed 1\n", "parked", "replay", "orders", "--id", "message")
	shown("tasks", "ls", "orders")
	o.wants(cli.Done, "purged 1\n", "parked", "purge", "orders", "--id", "library")
}

// TestTopicsInACircleAreRefused: topic set and apply write nothing. check finds documents
// that something else wrote.
func TestTopicsInACircleAreRefused(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.puts(map[string]string{"orders": "{exchange: x, intake: {exchange: y}}"})
	const circle = "tasks would go round in a circle: orders delivers to exchange x, the intake of payments; payments " +
		"delivers to exchange y, the intake of orders"
	o.wants(cli.Failed, circle, "topic", "create", "payments", "exchange=y", "intake.exchange=x")
	path := writeFile(t, "topics.yaml", "payments: {exchange: y, intake: {exchange: x}}")
	o.wants(cli.Failed, circle, "topic", "apply", "-f", path, "--yes")
	o.wants(cli.Done, "ok: 1 topics in consul", "check")
	o.puts(map[string]string{"payments": "{exchange: y, intake: {exchange: x}}"})
	o.wants(cli.Failed, circle, "check")
	o.puts(map[string]string{"payments": "{}",
		"orders": "{exchange: '', routing_key: due, intake: {exchange: y, queue: q}}"})
	o.wants(cli.Failed, "circle: orders delivers to queue q, the intake of orders", "topic", "set", "orders",
		"routing_key=q")
}

// TestTopicsThatShareAnIntakesQueueAreRefused: every verb that writes a document writes
// nothing. doctor finds documents that something else wrote, and they can be paused.
func TestTopicsThatShareAnIntakesQueueAreRefused(t *testing.T) {
	t.Parallel()
	o, _ := newBrokerOperator(t)
	o.wants(cli.Done, "written", "topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait")
	const shared = "topics would share queue q, which an intake needs alone: it is intake.queue of bills and " +
		"intake.queue of orders"
	o.wants(cli.Failed, shared, "topic", "create", "bills", "intake.exchange=y", "intake.queue=q")
	o.wants(cli.Done, "written", "topic", "create", "bills", "intake.exchange=y", "--no-wait")
	o.wants(cli.Failed, shared, "topic", "set", "bills", "intake.queue=q", "--dry-run")
	path := writeFile(t, "topics.yaml", "bills: {intake: {exchange: y, queue: q}}")
	o.wants(cli.Failed, shared, "topic", "apply", "-f", path, "--yes")
	swap := writeFile(t, "topics.yaml", "bills: {intake: {exchange: y, queue: q}}\n"+
		"orders: {intake: {exchange: x, queue: duefleet.bills.intake}}")
	o.wants(cli.Done, "topic orders written", "topic", "apply", "-f", swap, "--yes", "--no-wait")
	o.wants(cli.Failed, shared, "topic", "undo", "orders", "--to", "1")
	o.wants(cli.Failed, "tasks would go round in a circle", "topic", "set", "orders", "exchange=y",
		"intake.exchange=bills")

	o.puts(map[string]string{"orders": "{intake: {exchange: x, queue: q}}"})
	o.wants(cli.Failed, "bills: intake.queue: "+shared, "check")
	if got := o.found("topic bills intake queue"); !strings.Contains(got, "fail: "+shared) {
		t.Errorf("doctor: %s", got)
	}
	o.wants(cli.Done, "written", "topic", "pause", "orders", "--no-wait")
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	o.wants(cli.Done, "written", "topic", "set", "orders", "intake.queue=p", "--no-wait")
}

// TestIntakeRefuse: the first messages of the queue are set aside, listed, and recorded for
// scanner audit.
func TestIntakeRefuse(t *testing.T) {
	t.Parallel()
	o, url := newBrokerOperator(t)
	ch := servertest.Channel(t, url)
	inletsOf(t, ch, "x", "topic", "q")
	o.wants(cli.Done, "written", "topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait")
	o.serve("orders", 2)
	for _, id := range []string{"a", "b", "c"} {
		p := amqp.Publishing{MessageId: id, Body: []byte("body")}
		check.OK(t, ch.PublishWithContext(t.Context(), "x", "key", true, false, p))
	}
	o.wants(cli.Done, "waiting for the first message of queue q, for up to 2m0s\n"+
		"MESSAGE ID  EXCHANGE  ROUTING KEY  BYTES\na           x         key          4\n", "intake", "refuse", "orders")
	code, text := o.call("intake", "refuse", "orders", "--limit", "2", "--reason", "no shop", "-o", "json")
	_, lines, _ := strings.Cut(text, "\n")
	var all []refusedLine
	if err := json.Unmarshal([]byte(lines), &all); err != nil || code != cli.Done || len(all) != 2 ||
		all[1] != (refusedLine{"c", "x", "key", 4}) {
		t.Errorf("code %d, %v: %s", code, err, text)
	}
	for _, reason := range []string{"an operator refused it", "no shop", "no shop"} {
		d, there, err := ch.Get("q.refused", true)
		if err != nil || !there || d.Headers["x-duefleet-refused"] != reason {
			t.Errorf("refused for %v, %v, want %q", d.Headers, err, reason)
		}
	}
	e := o.audited("intake refuse")
	if n, _ := e["counts"].(map[string]any); e["state"] != "done" || n["changed"] != 1.0 ||
		e["filter"] != "the first messages of queue q" {
		t.Errorf("the audit has %v", e)
	}
	o.wants(cli.Failed, "the queue is empty, or a scanner takes messages from it", "intake", "refuse", "orders",
		"--wait", "10ms")
	o.wants(cli.Done, "written", "topic", "create", "plain", "--no-wait")
	o.wants(cli.Failed, "topic plain has no intake", "intake", "refuse", "plain")
	o.wants(cli.NotFound, "", "intake", "refuse", "absent")
	o.wants(cli.Usage, "--limit: must be at least 1", "intake", "refuse", "orders", "--limit", "0")
	o.wants(cli.Usage, "--wait: must be above 0", "intake", "refuse", "orders", "--wait", "0s")
	o.wants(cli.Usage, "--reason: must be a text", "intake", "refuse", "orders", "--reason", "")
}
