package amqpmsg

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
)

func TestAMessageAsJSON(t *testing.T) {
	t.Parallel()
	m, _ := every()
	m.Headers["no text"] = "\xff"
	m.Headers["not a number"] = math.Inf(-1)
	m.Headers["far"] = time.Unix(math.MaxInt64, 0)
	got, err := json.Marshal(NewView(&task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"routing_key":"a.b","properties":{"content_type":"text/plain","content_encoding":"gzip","delivery_mode":2,` +
		`"priority":9,"correlation_id":"c","reply_to":"r","expiration":"60000","message_id":"o-1",` +
		`"timestamp":"2026-12-01T10:00:00Z","type":"t","user_id":"guest","app_id":"app"},"headers":{` +
		`"A":{"type":"array","value":[{"type":"int32","value":1},{"type":"string","value":"x"},{"type":"void"}]},` +
		`"B":{"type":"uint8","value":255},"D":{"type":"decimal","value":"-1e-2"},` +
		`"F":{"type":"table","value":{"k":{"type":"bool","value":true}}},"I":{"type":"int32","value":-2},` +
		`"S":{"type":"string","value":"é"},"T":{"type":"timestamp","value":"1969-12-31T23:59:59Z"},"V":{"type":"void"},` +
		`"b":{"type":"int8","value":-1},"d":{"type":"float64","value":-0.5},"f":{"type":"float32","value":1.5},` +
		`"far":{"type":"timestamp","value":"9223372036854775807"},"i":{"type":"uint32","value":4294967295},` +
		`"l":{"type":"int64","value":-9223372036854775808},"no text":{"type":"string","value_base64":"/w=="},` +
		`"not a number":{"type":"float64","value":"-Inf"},"s":{"type":"int16","value":-2},"t":{"type":"bool","value":true},` +
		`"u":{"type":"uint16","value":65535},"x":{"type":"bytes","value_base64":"AP8="}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if NewView(nil) != nil {
		t.Error("a view of no message")
	}
}

func TestEveryMessageHasAView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		view := NewView(&task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers})
		if _, err := json.Marshal(view); err != nil {
			t.Fatal(err)
		}
	})
}
