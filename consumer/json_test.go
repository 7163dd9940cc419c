package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// purchase is a payload, with a type that has a decoder of its own.
type purchase struct {
	Number int            `json:"number"`
	Lines  []purchaseLine `json:"lines"`
	By     map[string]int `json:"by"`
	At     time.Time      `json:"at"`
	Code   coded          `json:"code"`
}

type purchaseLine struct {
	Price float64 `json:"price"`
}

type coded struct{}

// UnmarshalJSON refuses every value and quotes it.
func (*coded) UnmarshalJSON(b []byte) error { return errors.New("no code: " + string(b)) }

// TestAPayloadThatCanNotBeDecodedIsParked: the reason has the position, and nothing of
// the payload.
func TestAPayloadThatCanNotBeDecodedIsParked(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		``:                                "payload is empty, want JSON",
		`{"number":1`:                     "payload of 11 bytes: not JSON at byte 11",
		`{"number":secret}`:               "payload of 17 bytes: not JSON at byte 11",
		`{} secret`:                       "payload of 9 bytes: not JSON at byte 4",
		`"secret"`:                        "payload of 8 bytes: the value doesn't fit type consumer.purchase, at byte 8",
		`{"number":4711.5}`:               "payload of 17 bytes: field number doesn't fit type int, at byte 16",
		`{"lines":[{"price":"secret"}]}`:  "payload of 30 bytes: field lines.price doesn't fit type float64, at byte 27",
		`{"by":{"secret":"secret"}}`:      "payload of 26 bytes: field by doesn't fit type int, at byte 24",
		`{"at":"secret"}`:                 "payload of 15 bytes: can't be decoded into consumer.purchase (*time.ParseError)",
		`{"code":"secret"}`:               "payload of 17 bytes: can't be decoded into consumer.purchase (*errors.errorString)",
		"\xff\xfesecret":                  "payload of 8 bytes: not JSON at byte 1",
		`{"number":99999999999999999999}`: "payload of 31 bytes: field number doesn't fit type int, at byte 30",
	} {
		handler := JSON(func(context.Context, task.Delivery, purchase) error {
			t.Errorf("%s: was handled", payload)
			return nil
		})
		err := handler(t.Context(), task.NewDelivery(task.Task{Payload: []byte(payload)}, nil))
		if !IsParked(err) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", payload, err, want)
		}
	}
}

// TestAPayloadIsDecodedForItsHandler: the handler's result is returned, and d.Payload has
// the bytes.
func TestAPayloadIsDecodedForItsHandler(t *testing.T) {
	t.Parallel()
	const payload = `{"number":3,"unknown":true}`
	handler := JSON(func(_ context.Context, d task.Delivery, v purchase) error {
		if v.Number != 3 || string(d.Payload) != payload || d.ID != "a" {
			t.Errorf("got %+v of %s", v, d.Payload)
		}
		return errTest
	})
	err := handler(t.Context(), task.NewDelivery(task.Task{ID: "a", Payload: []byte(payload)}, nil))
	if !errors.Is(err, errTest) || IsParked(err) {
		t.Errorf("got %v", err)
	}
	raw := JSON(func(_ context.Context, _ task.Delivery, v json.RawMessage) error {
		if string(v) != payload {
			t.Errorf("got %s", v)
		}
		return nil
	})
	if err := raw(t.Context(), task.NewDelivery(task.Task{Payload: []byte(payload)}, nil)); err != nil {
		t.Error(err)
	}
	if JSON[purchase](nil) != nil {
		t.Error("a nil function makes a handler")
	}
}

// TestAValueGoesFromTheProducerToTheHandler. A payload that isn't such a value is parked
// in Redis.
func TestAValueGoesFromTheProducerToTheHandler(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	type bought struct{ Item string }
	items := make(chan handledItem, 1)
	c := w.consume(Config{Policy: Fixed(never, 5), Handler: JSON(func(_ context.Context, d task.Delivery, v bought) error {
		items <- handledItem{v.Item, d.ContentType}
		return nil
	})})
	r := producer.Request{ID: "good"}
	check.OK(w.t, r.SetJSON(bought{"a <lamp>"}))
	w.request(r)
	got := check.Receive(t, "the handler is called", items)
	if got.item != "a <lamp>" || got.contentType != "application/json" {
		t.Errorf("got %+v", got)
	}
	w.schedule("bad", "secret")
	check.Until(t, "it is parked", func() bool { return counted(c, park) == 1 })
	p := w.parked()["bad"]
	if p.Reason != "payload of 6 bytes: not JSON at byte 1" || string(p.Payload) != "secret" {
		t.Errorf("parked %+v", p)
	}
}

type handledItem struct{ item, contentType string }
