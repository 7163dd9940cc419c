package shard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

type recordVectors struct {
	Records []recordVector `json:"records"`
}

type recordVector struct {
	Name        string            `json:"name"`
	Record      string            `json:"record"`
	Attempt     int               `json:"attempt"`
	Redelivered bool              `json:"redelivered"`
	Exported    bool              `json:"exported"`
	Due         int64             `json:"due"`
	Scheduled   int64             `json:"scheduled"`
	Op          string            `json:"op"`
	Reason      string            `json:"reason"`
	ReasonAt    int64             `json:"reason_at,omitempty"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	Payload     string            `json:"payload"`
	// AMQP is an amqpmsg.View, for format 2.
	AMQP json.RawMessage `json:"amqp,omitempty"`
}

func (v recordVector) bytes(t testing.TB) string {
	t.Helper()
	b, err := hex.DecodeString(v.Record)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return string(b)
}

func TestRecordsDecodeAsTheVectorsSay(t *testing.T) {
	t.Parallel()
	for _, v := range golden[recordVectors](t, "record.json").Records {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			r, err := DecodeRecord("orders", "o-1", v.bytes(t))
			check.OK(t, err)
			check.Equal(t, "topic", r.Topic, "orders")
			check.Equal(t, "ID", r.ID, "o-1")
			check.Equal(t, "attempt", r.Attempt, v.Attempt)
			check.Equal(t, "redelivered", r.Redelivered, v.Redelivered)
			check.Equal(t, "due", r.Due.UnixMilli(), v.Due)
			check.Equal(t, "scheduled", r.Scheduled.UnixMilli(), v.Scheduled)
			check.Equal(t, "op", hex.EncodeToString([]byte(r.Op)), v.Op)
			check.Equal(t, "reason", r.Reason, v.Reason)
			if at := v.ReasonAt; at == 0 && !r.ReasonAt.IsZero() || at > 0 && r.ReasonAt.UnixMilli() != at {
				t.Errorf("reason at: got %s, want %d", r.ReasonAt, at)
			}
			check.Equal(t, "content type", r.ContentType, v.ContentType)
			check.Equal(t, "payload", hex.EncodeToString(r.Payload), v.Payload)
			if !maps.Equal(r.Headers, v.Headers) {
				t.Errorf("headers: got %q, want %q", r.Headers, v.Headers)
			}
			check.Equal(t, "message", viewOf(t, r.AMQP), compact(t, v.AMQP))
		})
	}
}

// viewOf returns a message in JSON; "" for none.
func viewOf(t *testing.T, a *task.AMQP) string {
	t.Helper()
	if a == nil {
		return ""
	}
	view, err := json.Marshal(amqpmsg.NewView(a))
	if err != nil {
		t.Fatal(err)
	}
	return string(view)
}

func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if text == nil {
		return ""
	}
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// bodyOf returns the body of a task's record, in either format.
func bodyOf(t *task.Task) string {
	b, err := Encode(t)
	if err != nil {
		panic(err) // a message that was decoded can be encoded
	}
	return string(b)
}

func TestBodiesEncodeAsTheVectorsSay(t *testing.T) {
	t.Parallel()
	for _, v := range golden[recordVectors](t, "record.json").Records {
		r, err := DecodeRecord("orders", "o-1", v.bytes(t))
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		if b := hex.EncodeToString([]byte(bodyOf(&r.Task))); !strings.HasSuffix(v.Record, b) {
			t.Errorf("%s: body %s is not the end of record %s", v.Name, b, v.Record)
		}
	}
}

func TestScriptsReadAndWriteRecordsAsTheVectorsSay(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	lib, err := sources.ReadFile("scripts/lib_record.lua")
	check.OK(c.t, err)
	reseal := redis.NewScript(string(lib) + "\nlocal r = open(ARGV[1])\nreturn {seal(r), r.prior and 1 or 0}")
	for _, v := range golden[recordVectors](t, "record.json").Records {
		reply, err := reseal.Run(c.t.Context(), c.rdb, nil, v.bytes(t)).Slice()
		check.OK(c.t, err)
		sealed, _ := reply[0].(string)
		check.Equal(t, v.Name, hex.EncodeToString([]byte(sealed)), v.Record)
		check.Equal(t, v.Name+": exported", reply[1] == int64(1), v.Exported)
	}
}

func TestAPutStoresTheRecordByteForByte(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.now() + time.Hour.Milliseconds()
	in := &task.Task{ContentType: "a/b", Headers: map[string]string{"k": "v"}, Payload: []byte("p")}
	at := task.At(time.UnixMilli(due))
	check.OK(c.t, c.tryPut(c.p, Put{Op: "ABCDEF", Entries: []Entry{{ID: "a", When: at, Body: EncodeBody(in)}}}).Err)
	raw, err := c.rdb.HGet(c.t.Context(), c.Shard(0).tasks(), "a").Result()
	check.OK(c.t, err)
	scheduled := uint48(raw[7:13])
	want := "\x10" + big48(due) + big48(scheduled) + "ABCDEF" + "\x01\x03a/b" + "\x01" + "\x01k\x00\x01v" + "p"
	check.Equal(t, "record", hex.EncodeToString([]byte(raw)), hex.EncodeToString([]byte(want)))
	if now := c.now(); scheduled > now || scheduled < now-20_000 {
		t.Errorf("scheduled at %d, and now is %d", scheduled, now)
	}
}

func big48(n int64) string {
	return string([]byte{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// head is the part of a record that scripts write, for a task without history.
const head = "\x10" + headRest

// headRest is the head of a record after the flags.
const headRest = "\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02ABCDEF"

func TestBodiesComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	text := rapid.String().Filter(func(s string) bool { return len(s) <= task.MaxHeaderKey })
	key := text.Filter(func(s string) bool { return task.CheckHeaders(map[string]string{s: ""}) == nil })
	rapid.Check(t, func(t *rapid.T) {
		in := task.Task{
			ContentType: text.Draw(t, "content type"),
			Headers:     rapid.MapOfN(key, rapid.String(), 0, task.MaxHeaders).Draw(t, "headers"),
			Payload:     rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Options: task.Options{
				RoutingKey: text.Draw(t, "routing key"), CorrelationID: text.Draw(t, "correlation ID"),
				ReplyTo:    text.Draw(t, "reply to"),
				Priority:   rapid.Byte().Draw(t, "priority"),
				Expiration: time.Duration(rapid.Uint32().Draw(t, "expiration")) * time.Millisecond,
			},
		}
		out, err := DecodeRecord("orders", "o-1", head+string(EncodeBody(&in)))
		check.OK(t, err)
		if in.ContentType == "" {
			in.ContentType = task.DefaultContentType
		}
		if out.ContentType != in.ContentType || string(out.Payload) != string(in.Payload) ||
			!maps.Equal(out.Headers, in.Headers) || out.Options != in.Options {
			t.Fatalf("got %+v, want %+v", out.Task, in)
		}
	})
}

// TestOptionsThatCannotBeKeptAreNamed: such a task is parked, and not delivered
// otherwise than its producer asked for.
func TestOptionsThatCannotBeKeptAreNamed(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"x-duefleet-priority": "256", "x-duefleet-expiration": "soon", "x-duefleet-reply-to": strings.Repeat("q", 256),
		"x-duefleet-newer": "1",
	} {
		body := EncodeBody(&task.Task{Headers: map[string]string{"k": "v", key: value}, Payload: []byte("p")})
		field := strings.ReplaceAll(strings.TrimPrefix(key, "x-duefleet-"), "-", "_")
		_, err := DecodeRecord("orders", "o-1", head+string(body))
		if err == nil || !strings.HasPrefix(err.Error(), "option") || !strings.Contains(err.Error(), key) &&
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

func TestTheLargestHeadersComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	in := task.Task{
		ContentType: strings.Repeat("c", task.MaxContentType),
		Headers:     map[string]string{"k": strings.Repeat("v", task.MaxHeaderBytes-1)},
		Payload:     []byte("p"),
	}
	check.OK(t, task.CheckHeaders(in.Headers))
	out, err := DecodeRecord("orders", "o-1", head+string(EncodeBody(&in)))
	if err != nil || !maps.Equal(out.Headers, in.Headers) || out.ContentType != in.ContentType ||
		string(out.Payload) != "p" {
		t.Fatalf("came back otherwise: %v, %d headers, payload %q", err, len(out.Headers), out.Payload)
	}
}

func TestARecordCutAnywhereBeforeItsPayloadIsRefused(t *testing.T) {
	t.Parallel()
	for _, v := range golden[recordVectors](t, "record.json").Records {
		whole := v.bytes(t)
		for n := range len(whole) - len(v.Payload)/2 {
			if _, err := DecodeRecord("orders", "o-1", whole[:n]); err == nil || !strings.Contains(err.Error(), "cut short") {
				t.Fatalf("%s, cut to %d of %d bytes: got %v", v.Name, n, len(whole), err)
			}
		}
	}
}

func TestARecordOfANewerFormatIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	_, err := DecodeRecord("orders", "o-1", "\x50whatever")
	var format *FormatError
	if !errors.As(err, &format) || format.Format != 5 || !strings.Contains(err.Error(), "upgrade") {
		t.Fatalf("got %v", err)
	}
}

// TestWhatATaskKeepsOfItsRecordIsLittle: a content type or header that shares the
// record's text would keep the whole record in memory, with a second copy of the payload.
func TestWhatATaskKeepsOfItsRecordIsLittle(t *testing.T) {
	t.Parallel()
	in := task.Task{ContentType: "text/plain", Headers: map[string]string{"tenant": "seven"},
		Payload: make([]byte, largeRecord)}
	record := head + string(EncodeBody(&in))
	out, err := DecodeRecord("orders", "o-1", record)
	check.OK(t, err)
	start := uintptr(unsafe.Pointer(unsafe.StringData(record)))
	within := func(text string) bool {
		at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
		return at >= start && at < start+uintptr(len(record))
	}
	if within(out.ContentType) {
		t.Error("the content type is a part of the record")
	}
	for k, v := range out.Headers {
		if within(k) || within(v) {
			t.Errorf("header %s is a part of the record", k)
		}
	}
}

// TestATaskThatWasNeverRetriedPaysNothing for its first due.
func TestATaskThatWasNeverRetriedPaysNothing(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1796119200000).UTC()
	record := "\x10" + big48(due.UnixMilli()) + big48(1) + "ABCDEF" + string(EncodeBody(&task.Task{FirstDue: due}))
	r, err := DecodeRecord("orders", "a", record)
	check.OK(t, err)
	check.Equal(t, "bytes", len(record), recordHead+1)
	check.Equal(t, "first due", r.FirstDue, due)
	check.Equal(t, "mark", NextMark(1796119200000, 1796119200000, 0), "1")
	check.Equal(t, "mark of a retry", NextMark(1796119200000, 1796119200001, 0), "1 1796119200000 1796119200001")
	check.Equal(t, "mark of a later retry", NextMark(1796119200000, 1796119200001, 7), "1 1796119200000 1796119200001 7")
}
