package amqpmsg

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	lines "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// TestAViewSaysAllOfAMessage: Parse reads from a view the message, bit for bit. So it does
// from the other encoder, which writes lines.
func TestAViewSaysAllOfAMessage(t *testing.T) {
	t.Parallel()
	bytesOrText := rapid.OneOf(rapid.StringN(0, -1, 255), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 255),
		func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		for _, text := range []*string{&m.RoutingKey, &m.Properties.AppID, &m.Properties.ContentType} {
			*text = bytesOrText.Draw(t, "text")
		}
		odd := map[string]any{
			"-0": math.Copysign(0, -1), "-0 of 32": float32(math.Copysign(0, -1)),
			"text": bytesOrText.Draw(t, "text"), "all": math.Float64frombits(rapid.Uint64().Draw(t, "bits")),
			"NaN":                       math.Float64frombits(0x7ff0<<48 | rapid.Uint64().Draw(t, "NaN")),
			"all of 32":                 math.Float32frombits(rapid.Uint32().Draw(t, "bits of 32")),
			"NaN of 32":                 math.Float32frombits(0x7f8<<20 | rapid.Uint32().Draw(t, "NaN of 32")),
			bytesOrText.Draw(t, "name"): []any{map[string]any{bytesOrText.Draw(t, "name"): nil}},
		}
		withNaN := rapid.Bool().Draw(t, "with NaN")
		if withNaN {
			m.Headers = odd
		}
		want, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		a := &task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}
		text, err := json.Marshal(NewView(a))
		if err != nil {
			t.Fatal(err)
		}
		line, err := lines.Marshal(NewView(a), lines.Deterministic(true), jsontext.AllowInvalidUTF8(false))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{text, line} {
			back, err := Parse(text)
			if err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			got, err := Encode(Message{back.RoutingKey, back.Properties, back.Headers, m.Body})
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %x, %v\nwant %x\nfrom %s", got, err, want, text)
			}
			if !withNaN && !reflect.DeepEqual(back, a) {
				t.Fatalf("got %#v\nwant %#v\nfrom %s", back, a, text)
			}
		}
	})
}

// TestViewsOfOddValues: fields that few messages have.
func TestViewsOfOddValues(t *testing.T) {
	t.Parallel()
	a := &task.AMQP{
		RoutingKey: "\xff", Properties: Properties{AppID: "\xfe", Type: "t"},
		Headers: map[string]any{
			"n32": math.Float32frombits(0xffc12345), "n64": math.Float64frombits(0x7ff0000000000001), "e": "", "x": []byte{},
			"t": map[string]any{"\xff": true}, "\xff\xfe": math.Copysign(0, -1), "a": []any{},
		},
	}
	got, err := json.Marshal(NewView(a))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"routing_key":"","properties":{"type":"t"},"headers":{"a":{"type":"array","value":[]},` +
		`"e":{"type":"string","value":""},"n32":{"type":"float32","value":"NaN","nan":"ffc12345"},` +
		`"n64":{"type":"float64","value":"NaN","nan":"7ff0000000000001"},` +
		`"t":{"type":"table","value":{},"table_base64":{"/w==":{"type":"bool","value":true}}},` +
		`"x":{"type":"bytes","value_base64":""}},"routing_key_base64":"/w==",` +
		`"properties_base64":{"app_id":"/g=="},"headers_base64":{"//4=":{"type":"float64","value":-0}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestWhatIsNoView: the error names the field.
func TestWhatIsNoView(t *testing.T) {
	t.Parallel()
	header := func(value string) string { return `{"headers":{"x":` + value + `}}` }
	deep := `{"type":"void"}`
	for range 34 {
		deep = `{"type":"array","value":[` + deep + `]}`
	}
	for text, want := range map[string]string{
		`[]`:                                   "amqp: want an object",
		`{"key":"k"}`:                          `amqp: unknown field "key"; known are routing_key, properties, headers, `,
		`{"Routing_key":"k"}`:                  `amqp: unknown field "Routing_key"`,
		`{"routing_key":1}`:                    "amqp.routing_key: want a string",
		`{"routing_key":null}`:                 "amqp.routing_key: want a string",
		`{"properties":"p"}`:                   "amqp.properties: want an object",
		`{"headers":[]}`:                       "amqp.headers: want an object",
		`{"properties":{"a":1}}`:               `amqp.properties: unknown field "a"; known are app_id, content_encoding, content_type, `,
		`{"properties":{"type":1}}`:            "amqp.properties.type: want a string",
		`{"properties":{"priority":256}}`:      "amqp.properties.priority: want a number from 0 to 255",
		`{"properties":{"delivery_mode":"2"}}`: "amqp.properties.delivery_mode: want a number from 0 to 255",
		`{"properties":{"timestamp":"now"}}`:   "amqp.properties.timestamp: want RFC 3339 in whole seconds",
		`{"properties":{"timestamp":"2026-12-01T10:00:00.5Z"}}`:                       "amqp.properties.timestamp: want RFC 3339 in whole seconds",
		`{"properties_base64":{"priority":"AQ=="}}`:                                   `amqp.properties_base64: unknown field "priority"`,
		`{"properties_base64":{"type":"AQ"}}`:                                         "amqp.properties_base64.type: illegal base64",
		`{"properties":{"type":"t"},"properties_base64":{"type":"AQ=="}}`:             "amqp.properties_base64.type: must not be given",
		`{"routing_key":"k","routing_key_base64":"/w=="}`:                             "amqp.routing_key_base64: must not be given with routing_key",
		`{"headers_base64":{"?":{"type":"void"}}}`:                                    "amqp.headers_base64.?: the name: illegal base64",
		`{"headers":{"a":{"type":"void"}},"headers_base64":{"YQ==":{"type":"void"}}}`: "amqp.headers_base64.YQ==: given twice",

		header(`1`):                                                         "amqp.headers.x: want an object",
		header(`{}`):                                                        "amqp.headers.x.type: want bool, int8, ",
		header(`{"type":"long","value":1}`):                                 "amqp.headers.x.type: want bool, int8, ",
		header(`{"type":"bool"}`):                                           "amqp.headers.x.value: is needed for the type bool",
		header(`{"type":"bool","value":null}`):                              "amqp.headers.x.value: want true or false",
		header(`{"type":"bool","value":1}`):                                 "amqp.headers.x.value: want true or false",
		header(`{"type":"void","value":1}`):                                 "amqp.headers.x.value: the type void has no such field",
		header(`{"type":"bytes","value":"a"}`):                              "amqp.headers.x.value: the type bytes has no such field",
		header(`{"type":"bytes"}`):                                          "amqp.headers.x.value_base64: is needed for the type bytes",
		header(`{"type":"string"}`):                                         "amqp.headers.x.value: is needed for the type string",
		header(`{"type":"string","value":1}`):                               "amqp.headers.x.value: want a string",
		header(`{"type":"int8","value":128}`):                               "amqp.headers.x.value: want a whole number of 8 bits",
		header(`{"type":"uint8","value":-1}`):                               "amqp.headers.x.value: want a whole number of 8 bits, 0 or more",
		header(`{"type":"int64","value":1.0}`):                              "amqp.headers.x.value: want a whole number of 64 bits",
		header(`{"type":"int64","value":9223372036854775808}`):              "amqp.headers.x.value: want a whole number of 64 bits",
		header(`{"type":"float32","value":1e39}`):                           "amqp.headers.x.value: want a number of 32 bits",
		header(`{"type":"float64","value":"1"}`):                            "amqp.headers.x.value: want a number, NaN, +Inf or -Inf",
		header(`{"type":"float64","value":true}`):                           "amqp.headers.x.value: want a number of 64 bits",
		header(`{"type":"float64","value":1,"nan":"7ff0000000000001"}`):     "amqp.headers.x.nan: want the bits of a NaN",
		header(`{"type":"float64","value":"NaN","nan":"7ff0000000000000"}`): "amqp.headers.x.nan: want the bits of a NaN",
		header(`{"type":"float32","value":"NaN","nan":"7ff0000000000001"}`): "amqp.headers.x.nan: want the bits of a NaN",
		header(`{"type":"decimal","value":3.14}`):                           "amqp.headers.x.value: want text such as 314e-2",
		header(`{"type":"decimal","value":"1e-256"}`):                       "amqp.headers.x.value: want text such as 314e-2",
		header(`{"type":"timestamp","value":1}`):                            "amqp.headers.x.value: want a string",
		header(`{"type":"array","value":{}}`):                               "amqp.headers.x.value: want an array",
		header(`{"type":"array","value":[null]}`):                           "amqp.headers.x.value.0: want an object",
		header(`{"type":"table","value":{"k":{"type":"int8","value":""}}}`): "amqp.headers.x.value.k.value: want a whole ",
		header(`{"type":"string","value":"a","value_base64":"YQ=="}`):       "amqp.headers.x.value_base64: must not be given",
		header(`{"type":"string","value":"a","nan":""}`):                    "amqp.headers.x.nan: the type string has no such",
		header(deep): "headers nest deeper than 32",
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s:\n got %v, %v\nwant %s", text, got, err, want)
		}
	}
}
