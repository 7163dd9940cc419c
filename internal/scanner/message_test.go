package scanner

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/amqptypes"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// numbered is a message with each property and each type of header.
func numbered(n int) amqpmsg.Message {
	return amqpmsg.Message{
		RoutingKey: fmt.Sprint("order.", n),
		Properties: amqpmsg.Properties{
			ContentType: "application/x", ContentEncoding: "gzip", DeliveryMode: 1, Priority: 7, CorrelationID: "c-1",
			ReplyTo: "answers", Expiration: "600000", Timestamp: time.Unix(1796119200, 0).UTC(), Type: "order",
			UserID: "guest", AppID: "shop",
		},
		Headers: map[string]any{
			"t": true, "b": int8(-1), "B": uint8(200), "s": int16(-300), "u": uint16(65000), "I": int32(-70000),
			"i": uint32(math.MaxUint32), "l": int64(math.MinInt64), "f": float32(1.5), "d": -0.25,
			"D": amqpmsg.Decimal{Scale: 2, Value: -12345}, "S": "grün", "x": []byte{0, 1, 255}, "V": nil,
			"T": time.Unix(-1, 0).UTC(), "A": []any{int32(1), "two"}, "F": map[string]any{"in": map[string]any{"k": nil}},
		},
		Body: []byte("the same body"),
	}
}

// TestMessagesOfTheIntakeFromRedisToTheQueue: no queue takes them, so they are given back
// and parked with the broker's reason. A change of M and a replay keep them. Then the
// queue gets every byte as it was stored.
func TestMessagesOfTheIntakeFromRedisToTheQueue(t *testing.T) {
	t.Parallel()
	const n = 40
	settings := "exchange: events, tick: 20ms, max_attempts: 2, backoff: {min: 20ms, max: 20ms}"
	l := newLone(t, map[string]string{"orders": "{shards: 1, " + settings + "}"}, nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDeclare("events", "topic", true, false, false, false, nil))
	l.start()
	want := map[string]string{} // by routing key
	entries := make([]shard.Entry, n)
	for i := range entries {
		m := numbered(i)
		body, err := amqpmsg.Encode(m)
		check.OK(l.t, err)
		want[m.RoutingKey] = string(body)
		entries[i] = shard.Entry{ID: fmt.Sprint("made-", i), When: task.Now(), Body: body}
	}
	for _, r := range router.New(l.store).Topic("orders").Schedule(t.Context(), entries) {
		check.OK(l.t, r.Err)
	}
	parked := func() (all []shard.Stored) {
		t.Helper()
		p, err := l.topic("orders").Placement(t.Context())
		check.OK(l.t, err)
		for at := range p.Scanned() {
			page, err := l.topic("orders").Shard(at).Parked().Next(t.Context())
			check.OK(l.t, err)
			all = append(all, page...)
		}
		return all
	}
	check.Count(t, "parked tasks", n, func() int { return len(parked()) })
	for _, r := range parked() {
		if r.AMQP == nil || r.Attempt != 3 || !strings.HasPrefix(r.Reason, "returned: 312 NO_ROUTE from exchange") ||
			!strings.HasSuffix(r.Reason, fmt.Sprintf("with routing key %q", r.AMQP.RoutingKey)) {
			t.Errorf("parked %+v", r)
		}
	}

	l.write(map[string]string{"orders": "{shards: 3, " + settings + "}"})
	check.Until(t, "the change of M", func() bool {
		p, err := l.topic("orders").Placement(t.Context())
		return err == nil && p.Shards == 3 && p.Phase == shard.Stable
	})
	_, err = ch.QueueDeclare("all", true, false, false, false, nil)
	check.OK(l.t, err)
	check.OK(l.t, ch.QueueBind("all", "#", "events", false, nil))
	replayed := 0
	for at := range 3 {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = entries[i].ID
		}
		some, err := l.topic("orders").Shard(at).Replay(t.Context(), ids...)
		check.OK(l.t, err)
		replayed += some
	}
	if replayed != n {
		t.Errorf("replayed %d of %d", replayed, n)
	}
	deliveries, err := ch.Consume("all", "", true, false, false, false, nil)
	check.OK(l.t, err)
	for range n {
		d := check.Receive(t, "a message", deliveries)
		if got, err := amqpmsg.Encode(amqptypes.Message(&d)); err != nil || !bytes.Equal(got, []byte(want[d.RoutingKey])) {
			t.Errorf("%s: %v\n got %q\nwant %q", d.RoutingKey, err, got, want[d.RoutingKey])
		}
		delete(want, d.RoutingKey)
	}
	if len(want) > 0 {
		t.Errorf("%d messages didn't come", len(want))
	}
}
