package ndjson

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// storedTasks generates stored tasks that keep the rules for input.
func storedTasks(now time.Time) *rapid.Generator[producer.Stored] {
	short := rapid.StringN(0, 40, 120)
	return rapid.Custom(func(t *rapid.T) producer.Stored {
		s := producer.Stored{State: task.Waiting}
		s.Topic = rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "topic")
		s.ID = rapid.StringN(1, 60, task.MaxID).Draw(t, "id")
		ahead := rapid.Int64Range(-1000, task.MaxAhead.Milliseconds()-1000).Draw(t, "ahead")
		s.Due = now.Add(time.Duration(ahead) * time.Millisecond)
		s.Payload = rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte {
			return []byte(s)
		})).Draw(t, "payload")
		s.ContentType = short.Draw(t, "content type")
		s.Headers = rapid.MapOfN(rapid.StringMatching(`[a-z\n"é☃ ]{1,20}`), rapid.String(), 0, 5).Draw(t, "headers")
		s.Options = task.Options{
			RoutingKey: short.Draw(t, "routing key"), Priority: rapid.Uint8().Draw(t, "priority"),
			Expiration: time.Duration(rapid.Int64Range(0, task.MaxExpiration.Milliseconds()).Draw(t, "expiration")) *
				time.Millisecond,
			CorrelationID: short.Draw(t, "correlation id"), ReplyTo: short.Draw(t, "reply to"),
		}
		if s.Recurrence = rapid.Ptr(rules(now), true).Draw(t, "rule"); s.Recurrence == nil {
			s.Series = short.Draw(t, "series")
		} else {
			s.ID = rapid.StringN(1, 50, task.MaxRecurringID).Draw(t, "ID of a recurring task")
		}
		return s
	})
}

// rules generates rules of recurring tasks.
func rules(now time.Time) *rapid.Generator[task.Recurrence] {
	return rapid.Custom(func(t *rapid.T) task.Recurrence {
		r := task.Recurrence{Each: rapid.Bool().Draw(t, "each"), Runs: rapid.IntRange(0, math.MaxUint32).Draw(t, "runs")}
		if rapid.Bool().Draw(t, "by dates") {
			r.Cron, r.Zone = "*/5 9-17 * * MON-FRI", rapid.SampledFrom([]string{"UTC", "Europe/Berlin"}).Draw(t, "zone")
		} else {
			ms := rapid.Int64Range(1000, task.MaxAhead.Milliseconds()).Draw(t, "every")
			r.Every = time.Duration(ms) * time.Millisecond
		}
		if rapid.Bool().Draw(t, "ends") {
			r.Until = now.Add(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "until")) * time.Millisecond)
		}
		return r
	})
}

// texts generates texts and bytes.
func texts(most int) *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(0, -1, most), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, most),
		func(b []byte) string { return string(b) }))
}

// headers generates headers of every type of AMQP.
func headers(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(texts(255), values(depth), 0, 6)
}

func values(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int8().AsAny(), rapid.Uint8().AsAny(), rapid.Int16().AsAny(),
		rapid.Uint16().AsAny(), rapid.Int32().AsAny(), rapid.Uint32().AsAny(), rapid.Int64().AsAny(),
		rapid.Map(rapid.Uint32(), math.Float32frombits).AsAny(), rapid.Map(rapid.Uint64(), math.Float64frombits).AsAny(),
		rapid.Float32().AsAny(), rapid.Float64().AsAny(), rapid.Just(math.Copysign(0, -1)).AsAny(),
		texts(1000).AsAny(), rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Map(rapid.Int64(), func(s int64) time.Time { return time.Unix(s, 0) }).AsAny(),
		rapid.Custom(func(t *rapid.T) any {
			return task.Decimal{Scale: rapid.Byte().Draw(t, "scale"), Value: rapid.Int32().Draw(t, "value")}
		}),
	}
	if depth > 0 {
		kinds = append(kinds, headers(depth-1).AsAny(), rapid.SliceOfN(values(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(kinds...)
}

// amqpMessages generates messages that an intake can store.
func amqpMessages() *rapid.Generator[*task.AMQP] {
	short := texts(255)
	return rapid.Custom(func(t *rapid.T) *task.AMQP {
		a := &task.AMQP{RoutingKey: short.Draw(t, "routing key"), Headers: headers(3).Draw(t, "headers")}
		a.Properties = task.AMQPProperties{
			ContentType: short.Draw(t, "content type"), ContentEncoding: short.Draw(t, "encoding"),
			DeliveryMode: rapid.Uint8Range(0, 2).Draw(t, "mode"), Priority: rapid.Uint8().Draw(t, "priority"),
			CorrelationID: short.Draw(t, "correlation id"), ReplyTo: short.Draw(t, "reply to"),
			Expiration: rapid.StringMatching("|[0-9]{1,9}").Draw(t, "expiration"), MessageID: short.Draw(t, "message id"),
			Type: short.Draw(t, "type"), UserID: short.Draw(t, "user"), AppID: short.Draw(t, "app"),
		}
		if rapid.Bool().Draw(t, "has a timestamp") {
			a.Properties.Timestamp = time.Unix(rapid.Int64().Draw(t, "timestamp"), 0)
		}
		if rapid.Bool().Draw(t, "due at once") {
			a.Headers[amqpmsg.HeaderHops], a.Headers[amqpmsg.HeaderTaken] = int64(1), rapid.Int64().Draw(t, "taken")
		}
		return a
	})
}

// body returns the body of a task's record.
func body(t interface{ Fatal(...any) }, a *task.AMQP, payload []byte) string {
	b, err := amqpmsg.Encode(amqpmsg.Message{RoutingKey: a.RoutingKey, Properties: a.Properties, Headers: a.Headers,
		Body: payload})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestALineSaysAllOfAMessage: a task that came through an intake has the same record after
// its line was read, byte for byte. pipe reads the same from it.
func TestALineSaysAllOfAMessage(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796119200000).UTC()
	rapid.Check(t, func(t *rapid.T) {
		s := producer.Stored{Task: task.Task{ID: "o-1", Topic: "orders", Due: now, AMQP: amqpMessages().Draw(t, "message")}}
		s.Payload, s.ContentType = rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), s.AMQP.Properties.ContentType
		line, err := AppendLine(nil, &s, false)
		check.OK(t, err)
		d := Decoder{Topic: "orders", MaxPayload: 1 << 20, Now: func() time.Time { return now }}
		r, err := d.Decode(line)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		piped, err := (&Parser{Topic: "orders"}).Parse(append([]byte(`{"verb":"schedule",`), line[1:]...))
		check.OK(t, err)
		for _, r := range []*Request{r, piped} {
			if got, want := body(t, r.AMQP, r.Payload), body(t, s.AMQP, s.Payload); got != want {
				t.Fatalf("line %s\n got %q\nwant %q", line, got, want)
			}
			if r.ContentType != "" || r.Headers != nil || r.Options != (task.Options{}) {
				t.Fatalf("got %+v", r)
			}
		}
	})
}

// TestTheLongestMessageFitsIntoALine: messages of the most bytes whose JSON is long, and one
// with control characters in each property.
func TestTheLongestMessageFitsIntoALine(t *testing.T) {
	t.Parallel()
	const payload = 1000
	voids, flags := map[string]any{}, map[string]any{}
	for i := range 16 {
		voids[fmt.Sprint(i)], flags[fmt.Sprint(i)] = make([]any, 8192-200), slices.Repeat([]any{false}, 4000)
	}
	short := strings.Repeat("\x01", 255)
	properties := task.AMQPProperties{ContentType: short, ContentEncoding: short, CorrelationID: short, ReplyTo: short,
		MessageID: short, Type: short, UserID: short, AppID: short}
	text := map[string]any{"t": strings.Repeat("\x01", amqpmsg.MaxProperties-300)}
	for i, a := range []*task.AMQP{
		{RoutingKey: short, Headers: voids}, {Headers: flags}, {RoutingKey: short, Headers: text},
		{RoutingKey: short, Properties: properties},
	} {
		if got := len(body(t, a, nil)); i < 3 && got < amqpmsg.MaxProperties-1500 {
			t.Errorf("message %d has %d bytes", i, got)
		}
		s := producer.Stored{Task: task.Task{ID: strings.Repeat("\x01", task.MaxID), Topic: "orders", Due: time.Now(),
			Payload: slices.Repeat([]byte{1}, payload), AMQP: a}}
		line, err := AppendLine(nil, &s, true)
		check.OK(t, err)
		if most := maxLine(payload); len(line) > most {
			t.Errorf("message %d: a line of %d bytes; at most %d", i, len(line), most)
		}
		_, err = testDecoder().Decode(line)
		check.OK(t, err)
	}
}

// TestALineSaysAllOfATask: Decoder reads from the line of a task a request that stores the
// same task, with the topic on the line or without.
func TestALineSaysAllOfATask(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796119200000).UTC()
	rapid.Check(t, func(t *rapid.T) {
		s, withTopic := storedTasks(now).Draw(t, "task"), rapid.Bool().Draw(t, "with topic")
		text, err := AppendLine([]byte("before"), &s, withTopic)
		line, found := bytes.CutPrefix(text, []byte("before"))
		if err != nil || !found || bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
			t.Fatalf("got %q, %v", text, err)
		}
		d := Decoder{MaxPayload: 1 << 20, Now: func() time.Time { return now }}
		if !withTopic {
			d.Topic = s.Topic
		}
		r, err := d.Decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if s.Series != "" {
			if s.Headers == nil {
				s.Headers = map[string]string{}
			}
			s.Headers[task.HeaderSeries] = s.Series
		}
		if len(s.Headers) == 0 {
			s.Headers = nil
		}
		if !reflect.DeepEqual(r.Recurrence, s.Recurrence) {
			t.Fatalf("line %s: got the rule %+v", line, r.Recurrence)
		}
		due, absolute := r.When.Instant()
		const all = "%q %q %v %v %q %q %q %+v"
		got := fmt.Sprintf(all, r.Topic, r.ID, due.UTC(), absolute, r.Payload, r.ContentType, r.Headers, r.Options)
		want := fmt.Sprintf(all, s.Topic, s.ID, s.Due, true, s.Payload, s.ContentType, s.Headers, s.Options)
		if got != want {
			t.Fatalf("line %s\n got %s\nwant %s", line, got, want)
		}
	})
}

// TestAppendLine: the fields are in a fixed order, and fields without a value are left out.
func TestAppendLine(t *testing.T) {
	t.Parallel()
	s := producer.Stored{Task: task.Task{Topic: "orders", ID: "o-1", Due: time.UnixMilli(1796119200001)}}
	for _, row := range []struct {
		change    func()
		withTopic bool
		want      string
	}{
		{func() {}, false, `{"id":"o-1","at":"2026-12-01T10:00:00.001Z"}`},
		{func() { s.Payload = []byte(`{"a":"<ü>"}`) }, true,
			`{"topic":"orders","id":"o-1","at":"2026-12-01T10:00:00.001Z","payload":"{\"a\":\"<ü>\"}"}`},
		{func() { s.Payload, s.Headers = []byte{0xff}, map[string]string{"b": "2", "a": "1"} }, false,
			`{"id":"o-1","at":"2026-12-01T10:00:00.001Z","payload_base64":"/w==","headers":{"a":"1","b":"2"}}`},
		{func() {
			s.Headers, s.ContentType = nil, "text/plain"
			s.AMQP = &task.AMQP{RoutingKey: "k", Properties: task.AMQPProperties{ContentType: "text/plain"},
				Headers: map[string]any{"n": int16(7)}}
		}, false, `{"id":"o-1","at":"2026-12-01T10:00:00.001Z","payload_base64":"/w==","amqp":{"routing_key":"k",` +
			`"properties":{"content_type":"text/plain"},"headers":{"n":{"type":"int16","value":7}}}}`},
		{func() { s.Payload, s.AMQP, s.ContentType, s.Series = nil, nil, "", "a" }, false,
			`{"id":"o-1","at":"2026-12-01T10:00:00.001Z","series":"a"}`},
		{func() {
			s.Series = ""
			s.Recurrence = &task.Recurrence{Cron: "0 9 1 * *", Zone: "Europe/Berlin", Until: time.UnixMilli(1796119200001),
				Runs: 3, Each: true, Planned: time.UnixMilli(1796119200000)}
		}, false, `{"id":"o-1","at":"2026-12-01T10:00:00.001Z","recurrence":{"cron":"0 9 1 * *",` +
			`"zone":"Europe/Berlin","until":"2026-12-01T10:00:00.001Z","runs":3,"each":true}}`},
	} {
		row.change()
		line, err := AppendLine(nil, &s, row.withTopic)
		check.OK(t, err)
		check.Equal(t, "line", string(line), row.want+"\n")
	}
}

// TestAppendLineRefuses: a task that a line can't hold is an error, and nothing is appended.
func TestAppendLineRefuses(t *testing.T) {
	t.Parallel()
	bad := producer.Stored{Task: task.Task{ID: "o-1", Headers: map[string]string{"k": "\xff"}}}
	if b, err := AppendLine([]byte("x"), &bad, false); err == nil || string(b) != "x" {
		t.Errorf("not UTF-8: %q, %v", b, err)
	}
}
