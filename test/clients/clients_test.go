//go:build clients

package clients_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	intake = "orders.delayed" // the exchange that the publishers declare
	due    = "orders"         // the exchange that the consumers declare
	count  = 48               // messages of one publisher: each of its eight delays six times
)

// binaries holds the two programs, built once for all tests.
var binaries fleet.Binaries

func TestMain(m *testing.M) {
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{}, &binaries))
}

// TestClients: messages of every client arrive once, as they were published, and never
// early. The client's consumer reads a second copy of each message before duefleet has it.
func TestClients(t *testing.T) {
	for _, c := range clients(t) {
		t.Run(c.name, func(t *testing.T) {
			url := startFleet(t, nil)
			broker := channel(t, url)
			witness := bindWitness(t, broker)
			arriving := start(t, "consumer", c.consumer, url, "EXCHANGE="+due, "QUEUE=arrived")
			published := start(t, "witness", c.consumer, url, "EXCHANGE="+intake, "QUEUE=published")
			arriving.awaitReady()
			published.awaitReady()
			start(t, "publisher", c.publisher, url).awaitEnd()
			before := byNumber(t, published.lines(), line.number)
			after := byNumber(t, arriving.lines(), line.number)
			compareLines(t, before, after)
			compareMessages(t, byNumber(t, getAll(t, broker, witness), number),
				byNumber(t, getAll(t, broker, "orders.due"), number))
		})
	}
}

// startFleet starts a scanner with the topic orders and returns the URL of its vhost. It
// adds more keys to the intake.
func startFleet(t *testing.T, more map[string]any) string {
	t.Helper()
	in := map[string]any{"exchange": intake, "type": "topic", "priorities": true}
	maps.Copy(in, more)
	settings := fleet.Settings{Topics: map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", fleet.Topic{
			"routing_key": "order.#",
			"declare":     map[string]any{"type": "topic", "queue": "orders.due", "queue_type": "classic"},
			"intake":      in,
		}),
	}}
	settings.RedisAddr, settings.RedisPrefix = servertest.Redis(t)
	settings.RabbitMQURL = servertest.RabbitMQ(t)
	dir := t.TempDir()
	config := dir + "/config.yaml"
	if err := fleet.WriteConfig(config, settings.Document()); err != nil {
		t.Fatal(err)
	}
	s, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{Binary: binaries.Scanner, Config: config, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Hang)
		defer cancel()
		if err := fleet.StopAll(ctx, []*fleet.Scanner{s}); err != nil {
			t.Error(err)
		}
	})
	return settings.RabbitMQURL
}

// channel opens a channel that reads whatever headers the clients publish. Kombu's integers
// have a type that amqp091-go alone can't read, and RabbitMQ 3.10 passes them on unchanged.
func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	server, err := amqpconn.Parse(url, nil)
	check.OK(t, err)
	conn, err := server.Dial(check.Context(t), amqpconn.Config{Timeout: check.Hang, Heartbeat: check.Hang})
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	check.OK(t, err)
	return ch
}

// bindWitness makes a queue with a copy of everything that is published to the intake.
func bindWitness(t *testing.T, broker *amqp.Channel) string {
	t.Helper()
	if err := broker.ExchangeDeclare(intake, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	q, err := broker.QueueDeclare("witness", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.QueueBind(q.Name, "#", intake, false, nil); err != nil {
		t.Fatal(err)
	}
	return q.Name
}

// getAll takes all messages from a queue.
func getAll(t *testing.T, broker *amqp.Channel, queue string) (all []amqp.Delivery) {
	t.Helper()
	for {
		d, ok, err := broker.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

// byNumber sorts messages by the number in their bodies. Each number must come once.
func byNumber[T any](t *testing.T, all []T, number func(T) int) map[int]T {
	t.Helper()
	sorted := map[int]T{}
	for _, m := range all {
		sorted[number(m)] = m
	}
	if len(all) != count || len(sorted) != count {
		t.Fatalf("%d messages with %d numbers, want %d", len(all), len(sorted), count)
	}
	return sorted
}

// number returns the number in a message's body.
func number(d amqp.Delivery) int {
	n, _ := readBody(d.Body)
	return n
}

// readBody returns the two numbers at the beginning of a body: the message's number, and
// when it was published, in Unix milliseconds.
func readBody(body []byte) (n int, sent int64) {
	if _, err := fmt.Sscanf(string(body), "%d %d\n", &n, &sent); err != nil {
		return -1, 0
	}
	return n, sent
}

// compareMessages compares what amqp091 reads: every property, and every header with its
// type.
func compareMessages(t *testing.T, before, after map[int]amqp.Delivery) {
	t.Helper()
	for n, b := range before {
		a := after[n]
		if a.Exchange != due {
			t.Errorf("message %d came from the exchange %q, want %q", n, a.Exchange, due)
		}
		if want := delivered(t, b.Headers["x-delay"]); !sameDelay(a.Headers["x-delay"], want) {
			t.Errorf("message %d: x-delay is %T %[2]v, want the value of %T %[3]v", n, a.Headers["x-delay"], want)
		}
		if got, want := content(a), content(b); !reflect.DeepEqual(got, want) {
			t.Errorf("message %d arrived as\n%#v, published was\n%#v", n, got, want)
		}
	}
}

// content returns a delivery without what says how it came here, without x-delay, and
// without the hop of a message that was due at once.
func content(d amqp.Delivery) amqp.Delivery {
	d.Acknowledger, d.ConsumerTag, d.DeliveryTag, d.MessageCount, d.Exchange = nil, "", 0, 0, ""
	d.Headers = unmarked(d.Headers)
	return d
}

// unmarked returns a copy of headers without those that duefleet changes or adds.
func unmarked[M ~map[string]any](headers M) M {
	headers = maps.Clone(headers)
	for _, name := range []string{"x-delay", "x-duefleet-hops", "x-duefleet-taken"} {
		delete(headers, name)
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// delivered returns the x-delay with which a message arrives: a delay has its sign
// reversed, everything else is as published.
func delivered(t *testing.T, published any) any {
	t.Helper()
	if ms := millis(t, published); ms > 0 {
		return -ms
	}
	return published
}

func sameDelay(got, want any) bool {
	if ms, ok := want.(int64); ok && ms < 0 {
		v := reflect.ValueOf(got)
		return v.IsValid() && v.CanInt() && v.Int() == ms
	}
	return reflect.DeepEqual(got, want)
}

// millis returns the delay that a value of x-delay asks for.
func millis(t *testing.T, delay any) int64 {
	t.Helper()
	switch v := reflect.ValueOf(delay); {
	case !v.IsValid():
		return 0
	case v.CanInt():
		return v.Int()
	case v.CanFloat():
		return int64(v.Float())
	case v.Kind() == reflect.String:
		ms, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	t.Fatalf("x-delay is a %T", delay)
	return 0
}

// compareLines compares what the client itself reads.
func compareLines(t *testing.T, before, after map[int]line) {
	t.Helper()
	var latest time.Duration
	for n, b := range before {
		a := after[n]
		want, got := b.content(), a.content()
		if got != want {
			t.Errorf("the client reads message %d as\n%s, published was\n%s", n, got, want)
		}
		_, sent := readBody(b.Body)
		late := time.Duration(a.At-sent-max(0, delays()[n%len(delays())])) * time.Millisecond
		if late < 0 {
			t.Errorf("message %d came %s early", n, -late)
		}
		latest = max(latest, late)
	}
	t.Logf("the latest of %d messages came %s after its delay", len(before), latest)
}

// delays are the delays of every publisher, which publishes message n with delay n modulo
// their number.
func delays() []int64 { return []int64{0, 0, -5, 250, 700, 1200, 450, 3000} }

// environ returns the environment of a client's program.
func environ(url string, more ...string) []string {
	env := []string{"AMQP_URL=" + url, "COUNT=" + strconv.Itoa(count)}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "EXCHANGE=") && !strings.HasPrefix(kv, "QUEUE=") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}
