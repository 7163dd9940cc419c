package ndjson

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		return s
	})
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
		if len(s.Headers) == 0 {
			s.Headers = nil
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
	amqp := producer.Stored{Task: task.Task{ID: "o-1", AMQP: &task.AMQP{}}}
	b, err := AppendLine([]byte("x"), &amqp, false)
	if !errors.Is(err, ErrIntake) || string(b) != "x" {
		t.Errorf("intake: %q, %v", b, err)
	}
	bad := producer.Stored{Task: task.Task{ID: "o-1", Headers: map[string]string{"k": "\xff"}}}
	if b, err = AppendLine([]byte("x"), &bad, false); err == nil || string(b) != "x" {
		t.Errorf("not UTF-8: %q, %v", b, err)
	}
}
