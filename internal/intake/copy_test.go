package intake

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// bodies returns the records of a Redis by ID, without the head in which times are.
func (h *harness) bodies(r *fixture.Redis) map[string]string {
	h.t.Helper()
	all := map[string]string{}
	iter := r.Client.Scan(h.t.Context(), 0, r.Prefix+"*task*", 1000).Iterator()
	for iter.Next(h.t.Context()) {
		for id, record := range r.Client.HGetAll(h.t.Context(), iter.Val()).Val() {
			const head = 19 // format, due, scheduled, op
			all[id] = record[:1] + record[head:]
		}
	}
	check.OK(h.t, iter.Err())
	return all
}

// TestWhatAnIntakeStoresCanBeCopied: the line of each stored task is a request that stores the
// same record in another Redis, byte for byte.
func TestWhatAnIntakeStoresCanBeCopied(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.prios = true
	h.start()
	at := time.Unix(1796119200, 0)
	everything := amqp.Table{
		"x-delay": int32(3_600_000), "bool": true, "i8": int8(-1), "u8": uint8(200), "i16": int16(-2), "u16": uint16(60000),
		"i32": int32(-3), "u32": uint32(4_000_000_000), "i64": int64(-4), "f32": float32(1.5), "f64": 2.5,
		"decimal": amqp.Decimal{Scale: 2, Value: -314}, "text": "\xff", "bytes": []byte{0, 255}, "time": at, "nothing": nil,
		"array": []any{int32(1), "two", amqp.Table{"\xfe": int64(3)}}, "CC": []any{"other"}, "x-duefleet-attempt": int32(1),
	}
	h.publish(amqp.Publishing{
		Headers: everything, ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 1, Priority: 7,
		CorrelationId: "\xff", ReplyTo: "r", Expiration: "60000", MessageId: "all", Timestamp: at, Type: "kind",
		UserId: "guest", AppId: "app", Body: []byte("\x00body"),
	})
	h.publish(newMessage("at once"))
	h.publish(newMessage("", HeaderIn, "1h"))
	h.settled()

	other := fixture.New(t)
	other.Serve(t, 2)
	from, err := producer.New(producer.Config{Redis: h.redis.Client, Prefix: h.redis.Prefix})
	check.OK(h.t, err)
	to, err := producer.New(producer.Config{Redis: other.Client, Prefix: other.Prefix})
	check.OK(h.t, err)
	for s, err := range from.List(t.Context(), fixture.Orders, producer.Filter{}) {
		check.OK(h.t, err)
		line, err := ndjson.AppendLine(nil, &s, true)
		check.OK(h.t, err)
		r, err := (&ndjson.Decoder{MaxPayload: maxPayload, Now: time.Now}).Decode(line)
		check.OK(h.t, err)
		_, err = to.Schedule(t.Context(), r.Request)
		check.OK(h.t, err)
	}
	got, want := fmt.Sprintf("%q", h.bodies(other)), fmt.Sprintf("%q", h.bodies(h.redis))
	if n := len(h.bodies(other)); n != 3 || got != want {
		t.Errorf("%d tasks\ngot  %s\nwant %s", n, got, want)
	}
}
