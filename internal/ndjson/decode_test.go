package ndjson

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

func testDecoder() *Decoder {
	return &Decoder{Topic: "orders", MaxPayload: 1000, Now: time.Now}
}

func TestDecodeLine(t *testing.T) {
	t.Parallel()
	at := producer.At(time.UnixMilli(1796119200000).UTC())
	for name, test := range map[string]struct {
		line string
		want producer.Request
	}{
		"the least": {`{"id":"o-1","in":"30m"}`, producer.Request{ID: "o-1", When: producer.In(30 * time.Minute)}},
		"all fields": {
			`{"id":"o-1","at":1796119200000,"payload":"{\"a\":1}","content_type":"application/json","headers":{"k":"v"}}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`{"a":1}`), ContentType: "application/json",
				Headers: map[string]string{"k": "v"}},
		},
		"a payload in JSON": {
			`{"id":"o-1","at":1796119200000,"payload": { "b":1, "a":[1.50, 1e3, "<\u00fc>"] } }`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`{ "b":1, "a":[1.50, 1e3, "<\u00fc>"] }`),
				ContentType: "application/json"},
		},
		"one with a type of its own": {
			`{"id":"o-1","content_type":"application/cloudevents+json","payload":{},"at":1796119200000}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`{}`), ContentType: "application/cloudevents+json"},
		},
		"one with no type": {`{"id":"o-1","at":1796119200000,"payload":[],"content_type":""}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`[]`)}},
		"a number": {`{"id":"o-1","at":1796119200000,"payload":-0.0}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`-0.0`), ContentType: "application/json"}},
		"false": {`{"id":"o-1","at":1796119200000,"payload":false}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`false`), ContentType: "application/json"}},
		"at as text":   {`{"id":"o-1","at":"2026-12-01T10:00:00Z"}`, producer.Request{ID: "o-1", When: at}},
		"at as digits": {`{"id":"o-1","at":"1796119200000"}`, producer.Request{ID: "o-1", When: at}},
		"bytes": {`{"id":"o-1","at":1796119200000,"payload_base64":"AP/+"}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte{0, 255, 254}}},
		"white space":       {" \t{ \"id\" : \"o-1\" , \"at\" : 1796119200000 } \r", producer.Request{ID: "o-1", When: at}},
		"a surrogate pair":  {`{"id":"\ud83d\ude00","at":1796119200000}`, producer.Request{ID: "😀", When: at}},
		"escaped backslash": {`{"id":"\\ud83d","at":1796119200000}`, producer.Request{ID: `\ud83d`, When: at}},
		"any characters":    {`{"id":"\u0000\n☃ \"","at":1796119200000}`, producer.Request{ID: "\x00\n☃ \"", When: at}},
		"options": {
			`{"id":"o-1","at":1796119200000,"routing_key":"k","priority":255,"expiration":"1h30m","correlation_id":"c","reply_to":"q"}`,
			producer.Request{ID: "o-1", When: at, Options: task.Options{RoutingKey: "k", Priority: 255,
				Expiration: 90 * time.Minute, CorrelationID: "c", ReplyTo: "q"}},
		},
		"a message of an intake": {
			`{"id":"o-1","at":1796119200000,"payload":[1],"amqp":{"routing_key":"k","headers":{"n":{"type":"int8","value":1}}}}`,
			producer.Request{ID: "o-1", When: at, Payload: []byte(`[1]`)},
		},
		"a series": {`{"id":"o-1","at":1796119200000,"headers":{"k":"v"},"series":"a"}`,
			producer.Request{ID: "o-1", When: at, Headers: map[string]string{"k": "v", task.HeaderSeries: "a"}}},
		"now":         {`{"id":"o-1","in":"0s"}`, producer.Request{ID: "o-1", When: producer.Now()}},
		"the longest": {`{"id":"o-1","in":"36525d"}`, producer.Request{ID: "o-1", When: producer.In(36525 * 24 * time.Hour)}},
		"the past":    {`{"id":"o-1","in":"-1h"}`, producer.Request{ID: "o-1", When: producer.In(-time.Hour)}},
		"no headers":  {`{"id":"o-1","at":1796119200000,"headers":{}}`, producer.Request{ID: "o-1", When: at}},
	} {
		got, err := testDecoder().Decode([]byte(test.line))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "a message of an intake" {
			check.Equal(t, "message", fmt.Sprintf("%#v", *got.AMQP), fmt.Sprintf("%#v", task.AMQP{RoutingKey: "k",
				Headers: map[string]any{"n": int8(1)}}))
			got.AMQP = nil
		}
		test.want.Topic = "orders"
		if g, w := fmt.Sprintf("%+v", got.Request), fmt.Sprintf("%+v", test.want); g != w {
			t.Errorf("%s:\n got %s\nwant %s", name, g, w)
		}
	}
}

func TestDecodeRecurrence(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1796119200000).UTC()
	for fields, want := range map[string]producer.Request{
		`"recurrence":{"every":"1h0m0s"}`:                   {Recurrence: producer.Every(time.Hour)},
		`"in":"30m","recurrence":{"every":"1d"}`:            {When: producer.In(30 * time.Minute), Recurrence: producer.Every(24 * time.Hour)},
		`"recurrence":{"cron":"0 9 1 * *","zone":"UTC"}`:    {Recurrence: producer.Cron("0 9 1 * *", "UTC")},
		`"recurrence":{"every":"1m","runs":3,"each":true}`:  {Recurrence: &task.Recurrence{Every: time.Minute, Runs: 3, Each: true}},
		`"recurrence":{"every":"1m","until":1796119200000}`: {Recurrence: &task.Recurrence{Every: time.Minute, Until: at}},
		`"recurrence":{"every":"1m","until":"2026-12-01T10:00:00Z"},"amqp":{}`: {
			Recurrence: &task.Recurrence{Every: time.Minute, Until: at}, AMQP: &task.AMQP{}},
	} {
		d := testDecoder()
		d.Now = func() time.Time { return at.Add(-time.Hour) }
		line := `{"id":"a",` + fields + `}`
		got, err := d.Decode([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		piped, err := (&Parser{Topic: "orders"}).Parse([]byte(`{"verb":"schedule",` + line[1:]))
		check.OK(t, err)
		for _, got := range []*Request{got, piped} {
			check.Equal(t, line+": rule", *got.Recurrence, *want.Recurrence)
			check.Equal(t, line+": first run", got.When, want.When)
			check.Equal(t, line+": of an intake", got.AMQP != nil, want.AMQP != nil)
		}
		check.Equal(t, line+": in the past", Past(want.When, at) > 0, false)
	}
}

func TestDecodeBadLine(t *testing.T) {
	t.Parallel()
	many := make([]string, task.MaxHeaders+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":""`, i)
	}
	for line, want := range map[string]string{
		`{"id":"o-1","in":"30m"`:                          "malformed JSON: the line ends too soon",
		`{"id":"o-1","in":"30m",}`:                        "malformed JSON at byte 24: invalid character '}'",
		`{"id":"o-1" "in":"30m"}`:                         "malformed JSON at byte 13: invalid character '\"' after object value",
		`{"id":"o-1","in":"30m"} {"id":"o-2","in":"30m"}`: "malformed JSON at byte 25: invalid character",
		`{"id":"o-1","in":"30m"} x`:                       "malformed JSON at byte 25: invalid character",
		`{"id":"o-1","in":"30m","payload":"a`:             "malformed JSON: the line ends too soon",
		`{"id":"o-1\`:                                     "malformed JSON: the line ends too soon",
		`{"id":"o-1\x"}`:                                  "malformed JSON at byte 11: invalid escape sequence",
		"{\"id\":\"o\t1\"}":                               "malformed JSON at byte 9: invalid character '\\t' in string",
		`{"id":"o-1","at":1e}`:                            "malformed JSON at byte 20: invalid character '}' in number",
		`{"id":"o-1","at":01}`:                            "malformed JSON at byte 19: invalid character '1' after object value",
		`{"id":"o-1",,}`:                                  "malformed JSON at byte 13: invalid character ','",
		`{"id":o-1}`:                                      "malformed JSON at byte 7: invalid character 'o'",
		`{"id":}`:                                         "malformed JSON at byte 7: invalid character '}'",
		`{"id"}`:                                          "malformed JSON at byte 6: invalid character '}' after object name",
		`{id:"o-1"}`:                                      "malformed JSON at byte 2: invalid character 'i'",
		`hello`:                                           "malformed JSON at byte 1: invalid character 'h'",
		`not json`:                                        "malformed JSON at byte ",
		`true story`:                                      "malformed JSON at byte 6: invalid character",
		`2026-12-01 o-1`:                                  "malformed JSON at byte 5: invalid character",
		`"o-1","30m"`:                                     "malformed JSON at byte 6: invalid character",
		`[1`:                                              "malformed JSON: the line ends too soon",
		`{"id":none}`:                                     "malformed JSON at byte ",
		`{"id":"o-1","in":1,}`:                            "malformed JSON at byte ",
		`[1]`:                                             "want a JSON object, got an array",
		`"o-1"`:                                           "want a JSON object, got a string",
		`null`:                                            "want a JSON object, got null",
		"{\"id\":\"\xff\",\"in\":\"1m\"}":                 "not valid UTF-8",
		`{"id":"\ud83d","in":"1m"}`:                       "half a surrogate pair",
		`{"id":"\ude00","in":"1m"}`:                       "half a surrogate pair",
		`{"id":"\ud83d\ud83d","in":"1m"}`:                 "half a surrogate pair",
		`{"id":"o-1","in":"1m","color":"red"}`:            `unknown field "color"`,
		`{"ID":"o-1","in":"1m"}`:                          `unknown field "ID"`,
		`{"":"o-1","id":"o-1","in":"1m"}`:                 `unknown field ""`,
		`{"id":"o-1","recurrence":{"every":"1h","":1}}`:                    `recurrence: unknown field ""`,
		`{"id":"o-1","id":"o-2","in":"1m"}`:                                "id: given twice",
		`{"id":"o-1","in":"1m","headers":{},"headers":{}}`:                 "headers: given twice",
		`{"id":"o-1","in":"1m","headers":{"k":"","k":""}}`:                 "header k: given twice",
		`{"id":1,"in":"1m"}`:                                               "id: want a string, got a number",
		`{"id":null,"in":"1m"}`:                                            "id: want a string, got null",
		`{"id":"o-1","in":1}`:                                              "in: want a string, got a number",
		`{"id":"o-1","in":"1m","payload":null}`:                            "payload: want a string or another JSON value, got null",
		`{"id":"o-1","in":"1m","payload":{"a":{"k":1,"k":2}}}`:             "payload: an object in it gives a name twice",
		`{"id":"o-1","in":"1m","payload":{"a":1,}}`:                        "malformed JSON at byte 40: invalid character '}'",
		`{"id":"o-1","in":"1m","payload":{"a":"\ud83d"}}`:                  "half a surrogate pair",
		`{"id":"o-1","in":"1m","payload":{"a":1},"payload_base64":"AP/+"}`: "payload, payload_base64: only one",
		`{"id":"o-1","in":"1m","payload":[` + strings.Repeat(" ", 999) +
			`]}`: "payload: must be at most 1000 bytes (max_payload); got 1001 bytes",
		`{"id":"o-1","in":"1m","headers":["k"]}`:                  "headers: want a JSON object, got an array",
		`{"id":"o-1","in":"1m","headers":{"k":1}}`:                "header k: want a string, got a number",
		`{"id":"o-1","in":"1m","at":1}`:                           "only one of them",
		`{"id":"o-1"}`:                                            "in, at: one of them is needed",
		`{"id":"o-1","in":"soon"}`:                                "in: want a duration",
		`{"id":"o-1","at":"tomorrow"}`:                            "at: want RFC 3339",
		`{"id":"o-1","at":1.5}`:                                   "at: want RFC 3339",
		`{"id":"o-1","at":1796119200}`:                            "at: looks like Unix seconds; want milliseconds: 1796119200000, or RFC 3339",
		`{"id":"o-1","at":"1796119200"}`:                          "at: looks like Unix seconds; want milliseconds: 1796119200000, or RFC 3339",
		`{"id":"o-1","at":true}`:                                  "at: want a string, got true or false",
		`{"id":"o-1","in":"1m","payload":"","payload_base64":""}`: "payload, payload_base64: only one",
		`{"id":"o-1","in":"1m","payload_base64":"AP/"}`:           "payload_base64: illegal base64",
		`{"id":"o-1","in":"1m","payload_base64":"AP_-"}`:          "payload_base64: illegal base64",
		`{"in":"1m"}`:                                             "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes",
		`{"id":"","in":"1m"}`:                                     "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes",
		`{"in":"1m","id":"` + strings.Repeat("x", 256) +
			`"}`: "id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes",
		`{"id":"o-1","in":"1m","payload":"` + strings.Repeat("x", 1001) +
			`"}`: "payload: must be at most 1000 bytes (max_payload); got 1001 bytes",
		`{"id":"o-1","in":"1m","content_type":"` + strings.Repeat("x", 256) +
			`"}`: "content_type: must be 0 to 255 bytes of valid UTF-8; got 256 bytes",
		`{"id":"o-1","in":"1m","headers":{` + strings.Join(many, ",") +
			`}}`: "headers: must be at most 32; got 33 headers",
		`{"id":"o-1","in":"1m","headers":{"X-Duefleet-Due":"1"}}`: "header key: must not begin with x-duefleet-",
		`{"id":"o-1","in":"1m","headers":{"":"1"}}`:               "header key: must be 1 to 128 bytes",
		`{"id":"o-1","in":"1m","routing_key":"` + strings.Repeat("x", 256) +
			`"}`: "routing_key: must be 0 to 255 bytes of valid UTF-8; got 256 bytes",
		`{"id":"o-1","in":"1m","priority":256}`:                                        "priority: must be 0 to 255; got 256",
		`{"id":"o-1","in":"1m","priority":-1}`:                                         "priority: must be 0 to 255; got -1",
		`{"id":"o-1","in":"1m","priority":"1"}`:                                        "priority: want a whole number, got a string",
		`{"id":"o-1","in":"1m","priority":1.5}`:                                        "priority: ",
		`{"id":"o-1","in":"1m","expiration":60000}`:                                    "expiration: want a string, got a number",
		`{"id":"o-1","in":"1m","expiration":"soon"}`:                                   "expiration: want a duration",
		`{"id":"o-1","in":"1m","expiration":"0s"}`:                                     "expiration: must be 1ms or more",
		`{"id":"o-1","in":"1m","expiration":"50d"}`:                                    "expiration: must be 1ms to 1193h2m47.295s; got 1200h0m0s",
		`{"id":"o-1","in":"1m","reply_to":"amq.rabbitmq.reply-to"}`:                    "reply_to: must be a queue that others can reach",
		`{"id":"o-1","in":"1m","amqp":null}`:                                           "amqp: want a JSON object, got null",
		`{"id":"o-1","in":"1m","amqp":[]}`:                                             "amqp: want an object",
		`{"id":"o-1","in":"1m","amqp":{"headers":{"x":{"type":"int8","value":300}}}}`:  "amqp.headers.x.value: want a whole number of 8 bits",
		`{"id":"o-1","in":"1m","amqp":{"headers":{"x":1,"x":2}}}`:                      "amqp.headers.x: given twice",
		`{"id":"o-1","in":"1m","amqp":{"properties":{"priority":1},"properties":{}}}`:  "amqp.properties: given twice",
		`{"id":"o-1","in":"1m","amqp":{"routing_key":"\ud83d"}}`:                       "half a surrogate pair",
		`{"id":"o-1","in":"1m","amqp":{"properties":{"delivery_mode":3}}}`:             "amqp.properties.delivery_mode: must be 1 or 2; got 3",
		`{"id":"o-1","in":"1m","amqp":{"headers":{"x-duefleet-due":{"type":"void"}}}}`: "amqp.headers.x-duefleet-due: must not begin",
		`{"id":"o-1","in":"1m","amqp":{},"content_type":"a"}`:                          "content_type, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"headers":{}}`:                                "headers, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"routing_key":""}`:                            "routing_key, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"priority":0}`:                                "priority, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"expiration":"1m"}`:                           "expiration, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"correlation_id":"c"}`:                        "correlation_id, amqp: only one of them",
		`{"id":"o-1","in":"1m","amqp":{},"reply_to":"q"}`:                              "reply_to, amqp: only one of them",
		`{"id":"o-1","in":"1m","recurrence":null}`:                                     "recurrence: want a JSON object, got null",
		`{"id":"o-1","in":"1m","recurrence":"1h"}`:                                     "recurrence: want a JSON object, got a string",
		`{"id":"o-1","recurrence":{}}`:                                                 "every: must be 1s to",
		`{"id":"o-1","recurrence":{"every":"1h","evry":"1h"}}`:                         `recurrence: unknown field "evry"; known are every, cron, zone`,
		`{"id":"o-1","recurrence":{"every":"1h","every":"2h"}}`:                        "recurrence.every: given twice",
		`{"id":"o-1","recurrence":{"every":3600000}}`:                                  "recurrence.every: want a string, got a number",
		`{"id":"o-1","recurrence":{"every":"soon"}}`:                                   "recurrence.every: want a duration",
		`{"id":"o-1","recurrence":{"every":""}}`:                                       "recurrence.every: want a duration",
		`{"id":"o-1","recurrence":{"every":"0s","cron":"0 * * * *"}}`:                  "recurrence.every: must not be 0",
		`{"id":"o-1","recurrence":{"every":"1h","zone":"UTC"}}`:                        "every: must not be set together with cron or zone",
		`{"id":"o-1","recurrence":{"cron":"0 * * *","zone":"UTC"}}`:                    "cron: must be minute",
		`{"id":"o-1","recurrence":{"cron":"0 * * * *"}}`:                               "zone: must be a name",
		`{"id":"o-1","recurrence":{"every":"1h","until":"soon"}}`:                      "recurrence.until: want RFC 3339",
		`{"id":"o-1","recurrence":{"every":"1h","until":1796119200}}`:                  "recurrence.until: looks like Unix seconds",
		`{"id":"o-1","recurrence":{"every":"1h","until":0}}`:                           "until: must be in 1971 or later",
		`{"id":"o-1","recurrence":{"every":"1h","runs":-1}}`:                           "runs: must be 0 to",
		`{"id":"o-1","recurrence":{"every":"1h","runs":1.5}}`:                          "recurrence.runs: ",
		`{"id":"o-1","recurrence":{"every":"1h","each":1}}`:                            "recurrence.each: want true or false, got a number",
		`{"id":"o-1","recurrence":{"every":"1h","planned":1}}`:                         `recurrence: unknown field "planned"`,
		`{"id":"o-1","planned":1,"recurrence":{"every":"1h"}}`:                         `unknown field "planned"`,
		`{"id":"o-1","recurrence":{"every":"1h"},"in":"1m","at":1}`:                    "only one of them",
		`{"id":"o-1","recurrence":{"every":"1h"},"series":"a"}`:                        "series, recurrence: only one",
		`{"id":"` + strings.Repeat("x", 231) + `","recurrence":{"every":"1h"}}`:        "id: must be at most 230 bytes",
		`{"id":"o-1","in":"36600d"}`:                                                   "due: must be at most 100 years ahead",
		`{"id":"o-1","at":9223372036854775807}`:                                        "due: must be at most 100 years ahead",
		`{"id":"o-1","in":"36525d1ms"}`:                                                "due: must be at most 100 years ahead",
		`{"id":"o-1","in":"0"}`:                                                        "in: want a duration with a unit",
		`{"id":"o-1","in":"30us"}`:                                                     "due: must be at least 1ms",
		`{"id":"o-1","at":0}`:                                                          "due: must be in 1971 or later",
		`{"id":"o-1","at":"0"}`:                                                        "due: must be in 1971 or later",
		`{"id":"o-1","at":"0001-01-01T00:00:00Z"}`:                                     "due: must be given",
	} {
		_, err := testDecoder().Decode([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s\n got %v\nwant %s", line, err, want)
		}
	}
}

func BenchmarkDecodeLine(b *testing.B) {
	line := []byte(`{"id":"order-123456789","in":"30m","payload":"` + strings.Repeat("x", 200) + `"}`)
	d := testDecoder()
	for b.Loop() {
		_, err := d.Decode(line)
		check.OK(b, err)
	}
}
