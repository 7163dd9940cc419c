package intake

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TestDelaysAreReadAsByTheDelayedExchange: see get_delay in
// rabbit_delayed_message_utils.erl of rabbitmq/rabbitmq-delayed-message-exchange. On
// delivery a delay has its sign reversed; what was no delay stays as it is.
func TestDelaysAreReadAsByTheDelayedExchange(t *testing.T) {
	t.Parallel()
	const hundredYears = 36525 * 24 * 3600 * 1000
	for _, row := range []struct {
		value    any
		want     int64 // ms; 0: at once
		reversed any   // the header on delivery, if it was a delay
	}{
		{int8(100), 100, int8(-100)}, {int8(127), 127, int8(-127)}, {uint8(200), 200, int16(-200)},
		{int16(5000), 5000, int16(-5000)}, {uint16(60000), 60000, int32(-60000)}, {int32(5000), 5000, int32(-5000)},
		{int32(math.MaxInt32), math.MaxInt32, int32(-math.MaxInt32)},
		{uint32(math.MaxUint32), math.MaxUint32, int64(-math.MaxUint32)}, {int64(5000), 5000, int64(-5000)},
		{int64(math.MaxUint32) + 1, math.MaxUint32 + 1, int64(-math.MaxUint32 - 1)},
		{int64(hundredYears), hundredYears, int64(-hundredYears)},
		{float32(1500.9), 1500, int32(-1500)}, {1500.9, 1500, int32(-1500)}, {5e9, 5_000_000_000, int64(-5_000_000_000)},
		{"5000", 5000, int32(-5000)}, {"+5000", 5000, int32(-5000)}, {"005000", 5000, int32(-5000)},
		{[]byte("5000"), 5000, int32(-5000)}, {"2147483647", math.MaxInt32, int32(-math.MaxInt32)},
		{"2147483648", math.MaxInt32 + 1, int64(-math.MaxInt32 - 1)},
		{uint32(5000), 5000, int32(-5000)},
		{value: 0.9}, {value: -0.9}, {value: -1500.9}, {value: -1e300}, {value: "0"}, {value: "-5000"},
		{value: "-99999999999999999999999"}, {value: int8(0)}, {value: int8(-128)}, {value: int16(-1)},
		{value: int32(-5000)}, {value: int64(math.MinInt64)}, {value: uint8(0)}, {value: true}, {value: false}, {value: nil},
		{value: time.Unix(5000, 0)}, {value: amqpmsg.Decimal{Value: 5000}}, {value: []any{int32(5000)}},
		{value: map[string]any{"ms": int32(5000)}},
	} {
		headers := map[string]any{HeaderDelay: row.value, "other": "stays"}
		got, err := dueOf(headers)
		want := due{when: task.In(time.Duration(row.want) * time.Millisecond), given: true, delay: row.want}
		if row.want == 0 {
			want.when = task.Now()
		}
		if err != nil || got != want {
			t.Errorf("%T %v: got %+v, %v", row.value, row.value, got, err)
		}
		got.deliveredHeaders(headers)
		delivered := map[string]any{HeaderDelay: row.value, "other": "stays"}
		if row.want > 0 {
			delivered[HeaderDelay] = row.reversed
		}
		if !reflect.DeepEqual(headers, delivered) {
			t.Errorf("%T %v: delivered with %v", row.value, row.value, headers)
		}
	}
	for _, value := range []any{
		"", " 5000", "5000 ", "5,000", "5e3", "5000.0", "0x10", "1_000", "soon", "+", "-", "--5", "+-5", "٥", []byte{0xff},
		math.NaN(), math.Inf(1), math.Inf(-1), float32(math.Inf(1)),
		int64(hundredYears + 1), int64(math.MaxInt64), 1e300, "99999999999999999999999",
	} {
		if got, err := dueOf(map[string]any{HeaderDelay: value}); err == nil ||
			!strings.HasPrefix(err.Error(), "header x-delay: ") {
			t.Errorf("%T %v: got %+v, %v", value, value, got, err)
		}
	}
}

// TestOtherDueTimes: spans as flags take them, and instants as Unix ms or RFC 3339.
func TestOtherDueTimes(t *testing.T) {
	t.Parallel()
	now := due{when: task.Now(), given: true}
	in := func(d time.Duration) due { return due{when: task.In(d), given: true} }
	at := func(ms int64) due { return due{when: task.At(time.UnixMilli(ms)), given: true} }
	for _, row := range []struct {
		name  string
		value any
		want  due
	}{
		{HeaderIn, "30m", in(30 * time.Minute)}, {HeaderIn, "1d12h", in(36 * time.Hour)}, {HeaderIn, "0s", now},
		{HeaderIn, []byte("500ms"), in(500 * time.Millisecond)}, {HeaderIn, "-1h", in(-time.Hour)},
		{HeaderIn, "36525d", in(task.MaxAhead)},
		{HeaderDue, int64(1796119200123), at(1796119200123)}, {HeaderDue, "1796119200123", at(1796119200123)},
		{HeaderDue, "2026-12-01T10:00:00.123Z", at(1796119200123)}, {HeaderDue, time.Unix(1796119200, 0), at(1796119200000)},
		{HeaderDue, int64(31_536_000_000), at(31_536_000_000)}, {HeaderDue, int64(mostMillis), at(mostMillis)},
	} {
		if got, err := dueOf(map[string]any{row.name: row.value}); err != nil || got != row.want {
			t.Errorf("%s %v: got %+v, %v", row.name, row.value, got, err)
		}
	}
	for _, row := range []struct {
		name  string
		value any
	}{
		{HeaderIn, "30"}, {HeaderIn, 30.0}, {HeaderIn, int64(30)}, {HeaderIn, "36526d"}, {HeaderIn, "soon"}, {HeaderIn, ""},
		{HeaderIn, nil}, {HeaderDue, "soon"}, {HeaderDue, 1.8e12}, {HeaderDue, true}, {HeaderDue, nil},
		{HeaderDue, int64(1796119200)}, {HeaderDue, int64(mostMillis + 1000)}, {HeaderDue, int64(math.MaxInt64)},
		{HeaderDue, time.Unix(math.MaxInt64, 0)}, {HeaderIn, "0"}, {HeaderIn, "-0"}, {HeaderIn, "30us"},
		{HeaderIn, "36525d1ms"}, {HeaderDue, int32(-5)}, {HeaderDue, uint8(0)}, {HeaderDue, "0"},
		{HeaderDue, time.Time{}}, {HeaderDue, time.Unix(0, 0)}, {HeaderDue, int64(31_536_000_000 - 1)},
	} {
		if got, err := dueOf(map[string]any{row.name: row.value}); err == nil {
			t.Errorf("%s %v: got %+v", row.name, row.value, got)
		}
	}
	if got, err := dueOf(map[string]any{"x-delays": 1}); err != nil || got != (due{when: task.Now()}) {
		t.Errorf("no header: got %+v, %v", got, err)
	}
	for _, pair := range [][2]string{{HeaderDelay, HeaderDue}, {HeaderDelay, HeaderIn}, {HeaderIn, HeaderDue}} {
		if _, err := dueOf(map[string]any{pair[0]: "1", pair[1]: "1h"}); err == nil ||
			!strings.Contains(err.Error(), pair[0]+" and "+pair[1]+": must be one of them") {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

// TestFarAheadIsSeenFromRedis: an instant is too far by the clock that delivers.
func TestFarAheadIsSeenFromRedis(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMilli()
	limit := now + task.MaxAhead.Milliseconds()
	for at, want := range map[int64]bool{limit: false, limit + 1: true, 1: false} {
		if got := (due{when: task.At(time.UnixMilli(at))}).far(now); got != want {
			t.Errorf("%d ms from the limit: %v", at-limit, got)
		}
	}
}

// TestHeadersForDuefleetDoNotTravel: in any case of letters.
func TestHeadersForDuefleetDoNotTravel(t *testing.T) {
	t.Parallel()
	headers := map[string]any{"x-duefleet-in": "1h", "X-Duefleet-X": 1, "x-duefleet": "stays", "x-duefleet-": 2,
		"x-delivery-count": int64(1)}
	due{}.deliveredHeaders(headers)
	if want := map[string]any{"x-duefleet": "stays"}; !reflect.DeepEqual(headers, want) {
		t.Errorf("got %v", headers)
	}
}

// TestAnOpIsTheMessages: equal messages have the same, and any difference makes another.
func TestAnOpIsTheMessages(t *testing.T) {
	t.Parallel()
	op := func(change func(*amqp.Delivery)) shard.Op {
		d := &amqp.Delivery{MessageId: "a", Headers: amqp.Table{HeaderVerb: IfAbsent, HeaderIn: "1h"}, Body: []byte("body")}
		change(d)
		it := rules{maxPayload: maxPayload}.read(d, time.Now())
		if it.refusal != nil {
			t.Fatal(it.refusal.why)
		}
		return it.entry.Op
	}
	same := op(func(*amqp.Delivery) {})
	if len(same) != len(shard.NewOp()) || same != op(func(d *amqp.Delivery) { d.Redelivered = true }) {
		t.Errorf("a redelivery has another op than %x", same)
	}
	for name, change := range map[string]func(*amqp.Delivery){
		"ID":          func(d *amqp.Delivery) { d.MessageId = "b" },
		"time":        func(d *amqp.Delivery) { d.Headers[HeaderIn] = "2h" },
		"body":        func(d *amqp.Delivery) { d.Body = []byte("other") },
		"request":     func(d *amqp.Delivery) { d.CorrelationId = "c" },
		"routing key": func(d *amqp.Delivery) { d.RoutingKey = "r" },
	} {
		if op(change) == same {
			t.Errorf("another %s, and the same op", name)
		}
	}
}
