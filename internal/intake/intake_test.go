package intake

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/test/check"
)

// TestAMessageIsStoredAsItWasPublished: routing key, properties, headers with their types.
// Only the headers for duefleet are gone, and the sign of the delay is reversed.
func TestAMessageIsStoredAsItWasPublished(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.prios = true
	h.start()
	at := time.Unix(1796119200, 0).UTC()
	headers := amqp.Table{
		"x-delay": int32(3_600_000), "x-duefleet-attempt": int32(1), "bool": true, "i8": int8(-1), "u8": uint8(200),
		"i16": int16(-2), "u16": uint16(60000), "i32": int32(-3), "u32": uint32(4_000_000_000), "i64": int64(-4),
		"f32": float32(1.5), "f64": 2.5, "decimal": amqp.Decimal{Scale: 2, Value: -314}, "text": "ü", "bytes": []byte{0, 255},
		"time": at, "nothing": nil, "array": []any{int32(1), "two", amqp.Table{"three": int64(3)}},
		"table": amqp.Table{"in": amqp.Table{"deep": false}},
	}
	h.publish(amqp.Publishing{
		Headers: headers, ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 1, Priority: 7,
		CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "a", Timestamp: at, Type: "kind", UserId: "guest",
		AppId: "app", Body: []byte("\x00body"),
	})
	h.settled()
	want := amqpmsg.Message{
		RoutingKey: "key.of.a.client", Body: []byte("\x00body"),
		Properties: amqpmsg.Properties{ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 1, Priority: 7,
			CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "a", Timestamp: at, Type: "kind", UserID: "guest",
			AppID: "app"},
		Headers: map[string]any{
			"x-delay": int32(-3_600_000), "bool": true, "i8": int8(-1), "u8": uint8(200),
			"i16": int16(-2), "u16": uint16(60000), "i32": int32(-3), "u32": uint32(4_000_000_000), "i64": int64(-4),
			"f32": float32(1.5), "f64": 2.5, "decimal": amqpmsg.Decimal{Scale: 2, Value: -314}, "text": "ü",
			"bytes": []byte{0, 255}, "time": at, "nothing": nil,
			"array": []any{int32(1), "two", map[string]any{"three": int64(3)}},
			"table": map[string]any{"in": map[string]any{"deep": false}},
		},
	}
	got := h.one()
	if !reflect.DeepEqual(got.message, want) {
		t.Errorf("got  %+v\nwant %+v", got.message, want)
	}
	if got.delay() != time.Hour {
		t.Errorf("due after %v", got.delay())
	}
}

// TestAMessageWithoutAnIDGetsOne: the task has a random ID, and the message none.
func TestAMessageWithoutAnIDGetsOne(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	for range 2 {
		h.publish(newMessage("", "x-delay", 60_000))
	}
	h.settled()
	all := h.records()
	for id, s := range all {
		if id == "" || s.message.Properties.MessageID != "" {
			t.Errorf("task %q has the message_id %q", id, s.message.Properties.MessageID)
		}
	}
	if len(all) != 2 {
		t.Errorf("%d tasks", len(all))
	}
}

// TestWhenAMessageIsDue: each header that says so, end to end.
func TestWhenAMessageIsDue(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	at := time.UnixMilli(4_102_444_800_123)
	delays := map[string]any{"in text": "1m", "in bytes": []byte("1m"), "in days": "1d12h", "in the past": "-1h"}
	for id, value := range delays {
		h.publish(newMessage(id, HeaderIn, value))
	}
	dues := map[string]any{"at ms": at.UnixMilli(), "at text": "4102444800123", "at RFC 3339": "2100-01-01T00:00:00.123Z"}
	for id, value := range dues {
		h.publish(newMessage(id, HeaderDue, value))
	}
	h.publish(newMessage("at a timestamp", HeaderDue, at))
	h.publish(newMessage("in the past", HeaderDue, int64(-1)))
	h.publish(newMessage("at once"))
	h.settled()
	all := h.records()
	for id, want := range map[string]time.Duration{"in text": time.Minute, "in bytes": time.Minute,
		"in days": 36 * time.Hour, "in the past": 0, "at once": 0} {
		headers := 0
		if want == 0 {
			headers = 2 // its hop
		}
		if got, there := all[id]; !there || got.delay() != want || len(got.message.Headers) != headers {
			t.Errorf("%s: due after %v, want %v: %v %v", id, got.delay(), want, there, got.message.Headers)
		}
	}
	for id := range dues {
		if got := all[id].due; !got.Equal(at) {
			t.Errorf("%s: due at %v, want %v", id, got, at)
		}
	}
	if got, want := all["at a timestamp"].due, at.Truncate(time.Second); !got.Equal(want) {
		t.Errorf("at a timestamp: due at %v, want %v", got, want)
	}
}

// TestVerbsAndTheirAnswers: schedule, if-absent, move and cancel, with what Redis says.
func TestVerbsAndTheirAnswers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	to := h.answers()
	hour := time.Hour.Milliseconds()
	for i, row := range []struct {
		verb, id string
		headers  []any
		want     string
		left     time.Duration // of the task a; 0: it is gone
	}{
		{Move, "a", []any{HeaderIn, "1h"}, codeNotFound, 0},
		{Cancel, "a", nil, codeNotFound, 0},
		{Schedule, "a", []any{HeaderDelay, hour}, codeOK, time.Hour},
		{IfAbsent, "a", []any{HeaderDelay, 2 * hour}, codeExists, time.Hour},
		{Move, "a", []any{HeaderDelay, 3 * hour}, codeOK, 3 * time.Hour},
		{Schedule, "a", []any{HeaderIn, "4h"}, codeOK, 4 * time.Hour},
		{IfPresent, "a", []any{HeaderIn, "5h"}, codeOK, 5 * time.Hour},
		{Cancel, "a", []any{HeaderDelay, "anything"}, codeOK, 0},
		{IfPresent, "a", []any{HeaderIn, "5h"}, codeNotFound, 0},
		{IfAbsent, "a", []any{HeaderDelay, hour}, codeOK, time.Hour},
	} {
		correlation := fmt.Sprint("c", i)
		h.publish(request(to, correlation, row.id, row.verb, row.headers...))
		got, of := h.answer(to)
		if got.Code != row.want || of != correlation || (got.Due != 0) != (row.want == codeOK && row.verb != Cancel) {
			t.Errorf("%d, %s: got %+v for %s", i, row.verb, got, of)
		}
		a, there := h.records()["a"]
		if there != (row.left > 0) || there && (a.due.Sub(a.scheduled)-row.left).Abs() > time.Minute {
			t.Errorf("%d, %s: stored %v, due after %v, want %v", i, row.verb, there, a.delay(), row.left)
		}
		if there && got.Due != 0 && got.Due != a.due.UnixMilli() {
			t.Errorf("%d, %s: the answer says %d, Redis %d", i, row.verb, got.Due, a.due.UnixMilli())
		}
	}
}

// TestOnlyAVerbIsAnswered: a message with reply_to alone is a request to its consumer. An
// answer that nobody gets is dropped and holds nothing up.
func TestOnlyAVerbIsAnswered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	to := h.answers()
	plain := newMessage("a")
	plain.ReplyTo, plain.CorrelationId = to, "not for duefleet"
	h.publish(plain)
	without := request(to, "", "b", Schedule)
	h.publish(without)
	h.publish(request("no such queue", "c", "c", Schedule))
	h.publish(request(to, "wanted", "d", Schedule))
	if _, of := h.answer(to); of != "wanted" {
		t.Errorf("answered %q", of)
	}
	h.settled()
	if n := h.waiting(to); n != 0 || len(h.records()) != 4 {
		t.Errorf("%d more answers, %d tasks", n, len(h.records()))
	}
}

// TestTheLastMessageOfAnIDCounts: many messages of few IDs, published at once.
func TestTheLastMessageOfAnIDCounts(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const ids, times = 5, 200
	for i := range times {
		for id := range ids {
			p := newMessage(fmt.Sprint("t", id), HeaderIn, "1h")
			p.Body = fmt.Append(nil, i)
			if i%10 == 9 && i < times-1 {
				p.Headers[HeaderVerb] = Cancel
			}
			h.publish(p)
		}
	}
	h.start()
	h.settled()
	for id, s := range h.records() {
		if string(s.message.Body) != fmt.Sprint(times-1) {
			t.Errorf("task %s has the body %s", id, s.message.Body)
		}
	}
	if n := len(h.records()); n != ids {
		t.Errorf("%d tasks", n)
	}
}

// TestAMessageThatBreaksARuleIsRefused: it goes to the exchange for refused messages, as it
// was published, with the reason. The others are stored, and the client gets an answer.
func TestAMessageThatBreaksARuleIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	to := h.answers()
	in101Years := time.Now().AddDate(101, 0, 0).UnixMilli()
	long := strings.Repeat("x", maxPayload+1)
	rows := map[string]struct {
		message     amqp.Publishing
		class, says string
	}{
		"an ID that is no text": {newMessage("\xff"), refusedID, "id: must be 1 to 255 bytes of valid UTF-8"},
		"no ID to cancel":       {request(to, "c", "", Cancel), refusedID, "message_id: must be given"},
		"no ID if absent":       {newMessage("", HeaderVerb, IfAbsent), refusedID, "message_id: must be given"},
		"another verb": {newMessage("v", HeaderVerb, "drop"), refusedVerb,
			"must be schedule, if-absent, if-present, cancel or move"},
		"a verb that is no text": {newMessage("v", HeaderVerb, int32(1)), refusedVerb,
			"must be schedule, if-absent, if-present, cancel or move"},
		"a delay that is no number": {newMessage("d", HeaderDelay, "soon"), refusedWhen,
			"header x-delay: must be a whole number of milliseconds"},
		"two times": {newMessage("d", HeaderDelay, 1, HeaderIn, "1h"), refusedWhen,
			"headers x-delay and x-duefleet-in: must be one of them"},
		"due in 101 years": {newMessage("d", HeaderDue, in101Years), refusedWhen,
			"header x-duefleet-due: due: must be at most 100 years ahead"},
		"in 101 years":   {newMessage("d", HeaderIn, "36890d"), refusedWhen, "must be at most 100 years ahead"},
		"Unix seconds":   {newMessage("d", HeaderDue, int64(1796119200)), refusedWhen, "looks like Unix seconds"},
		"a bare number":  {newMessage("d", HeaderIn, "30"), refusedWhen, "want a duration with a unit"},
		"a span as int":  {newMessage("d", HeaderIn, int32(30)), refusedWhen, "must be text"},
		"a move to when": {newMessage("d", HeaderVerb, Move), refusedWhen, "a move needs one of the headers"},
		"too large":      {amqp.Publishing{MessageId: "p", Body: []byte(long)}, refusedPayload, "must be at most 1000 bytes"},
		"another case of letters": {newMessage("h", "X-Duefleet-In", "1h"), refusedHeaders,
			`header "X-Duefleet-In": must be x-delay, x-duefleet-in, x-duefleet-due, x-duefleet-verb, x-duefleet-priority, ` +
				"x-duefleet-group or of a rule: x-duefleet-every, x-duefleet-cron, x-duefleet-zone, x-duefleet-until, " +
				"x-duefleet-runs, x-duefleet-each; did you mean x-duefleet-in?"},
		"a delay with duefleet's prefix": {newMessage("h", "x-duefleet-delay", int32(5000)), refusedHeaders,
			"did you mean x-delay?"},
		"a mistyped due time": {newMessage("h", "x-duefleet-deu", "2100-01-01T00:00:00Z"), refusedHeaders,
			"did you mean x-duefleet-due?"},
		"a delay in capitals": {newMessage("h", "X-Delay", int32(5000)), refusedHeaders,
			`header "X-Delay": must be x-delay, `},
		"a delay with an underscore": {newMessage("h", "x_delay", int32(5000)), refusedHeaders, "did you mean x-delay?"},
		"an underscore in a name": {newMessage("h", "x-duefleet_in", "1h"), refusedHeaders,
			"did you mean x-duefleet-in?"},
		"underscores alone": {newMessage("h", "X_duefleet_due", "2100-01-01T00:00:00Z"), refusedHeaders,
			"did you mean x-duefleet-due?"},
		"a header like none": {newMessage("h", "x-duefleet-priority-of-mine", "1"), refusedHeaders,
			`header "x-duefleet-priority-of-mine": must be x-delay`},
	}
	for name, row := range rows {
		h.publish(row.message)
		d := h.taken(refused)
		said, _ := d.Headers[HeaderRefused].(string)
		if !strings.Contains(said, row.says) || d.Headers[HeaderRefusedClass] != row.class ||
			d.Headers[HeaderRefusedExchange] != exchange || d.RoutingKey != "key.of.a.client" ||
			d.MessageId != row.message.MessageId || string(d.Body) != string(row.message.Body) {
			t.Errorf("%s: got %q %v, key %s, ID %s, %d bytes", name, said, d.Headers, d.RoutingKey, d.MessageId, len(d.Body))
		}
	}
	if got, of := h.answer(to); got.Code != codeRefused || of != "c" || !strings.Contains(got.Reason, "message_id") {
		t.Errorf("the answer is %+v for %s", got, of)
	}
	h.publish(newMessage("good"))
	h.settled()
	if n := len(h.records()); n != 1 {
		t.Errorf("%d tasks", n)
	}
	if lines := strings.Count(h.log.String(), "message of the intake refused"); lines != 1 {
		t.Errorf("%d lines about refused messages, want 1 a minute:\n%s", lines, h.log)
	}
}

// TestRefusedMessagesWaitForTheirExchange: while it is gone, nothing is acked or dropped,
// and a message behind the refused one is carried out in its turn.
func TestRefusedMessagesWaitForTheirExchange(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publish(newMessage("first"))
	h.settled()
	check.OK(h.t, h.client.ExchangeDelete(refused, false, false))
	h.publish(newMessage("bad", HeaderVerb, "none"))
	h.publish(newMessage("good"))
	check.Until(t, "the intake to say why", func() bool {
		return strings.Contains(h.in.Trouble(), "send refused messages")
	})
	if n := h.waiting(refused); n != 0 || h.unacked() == 0 {
		t.Errorf("%d refused messages, %d bytes unacked", n, h.unacked())
	}
	check.OK(h.t, h.inlet.Prepare(h.client))
	h.settled()
	if n := h.waiting(refused); n != 1 || len(h.records()) != 2 || h.in.Trouble() != "" {
		t.Errorf("%d refused, %d stored, trouble %q", n, len(h.records()), h.in.Trouble())
	}
}
