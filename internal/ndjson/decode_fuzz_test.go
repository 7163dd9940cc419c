package ndjson

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// plainLine is a line as encoding/json decodes it.
type plainLine struct {
	ID          string            `json:"id"`
	Payload     json.RawMessage   `json:"payload"`
	Base64      []byte            `json:"payload_base64"`
	ContentType *string           `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	In          *string           `json:"in"`
	At          any               `json:"at"`
	AMQP        json.RawMessage   `json:"amqp"`
	Recurrence  json.RawMessage   `json:"recurrence"`
	Series      *string           `json:"series"`
}

// payload returns the payload and its content type.
func (p plainLine) payload(t *testing.T) (payload, contentType string) {
	t.Helper()
	payload = string(p.Base64)
	switch {
	case len(p.Payload) > 0 && p.Payload[0] == '"':
		check.OK(t, json.Unmarshal(p.Payload, &payload))
	case len(p.Payload) > 0:
		payload, contentType = string(p.Payload), "application/json"
	}
	if len(p.AMQP) > 0 {
		contentType = ""
	}
	if p.ContentType != nil {
		contentType = *p.ContentType
	}
	return payload, contentType
}

// seedLines are one line of each kind, good and bad.
func seedLines() []string {
	return []string{
		`{"id":"o-1","in":"30m","payload":"p"}`, `{"id":"o-1","in":"30m","payload": { "a": [1.0, "\u00fc"] } }`,
		`{"id":"o-1","in":"30m","payload":null}`,
		`{"id":"\ud83d\ude00","at":1796119200000,"payload_base64":"AP/+","headers":{"k":"v"},"content_type":"text/plain"}`,
		`{"id":"o-1","at":"2026-12-01T10:00:00Z","headers":{}}`, `{"id":"o-1","at":"1796119200000"}`,
		` { "id" : "o-1" , "at" : -1 } ` + "\r",
		`{"id":"\\\u0041","in":"-1.5d2h"}`, `{"id":"o-1","id":"o-2"}`, `{"id":"\ud83d","in":"1m"}`, `{"id":1,}`, `[`, ``,
		`null`,
		`{"id":"o-1","in":"1m","color":"red"}`, `{"ID":"o-1","in":"1m"}`, `{"id":"o-1","in":"1m","headers":{"k":"","k":""}}`,
		`{"id":"o-1","in":"1m","routing_key":"k","priority":9,"expiration":"1m","correlation_id":"c","reply_to":"q"}`,
		`{"id":"o-1","in":"1m","payload":1,"amqp":{"routing_key_base64":"/w==","properties":{"priority":1},"headers":` +
			`{"a":{"type":"array","value":[{"type":"float32","value":"NaN","nan":"7f800001"},{"type":"decimal","value":"1e-2"}]}}}}`,
		`{"id":"o-1","in":"1m","amqp":{"headers":{"x":{"type":"table","value":{"t":{"type":"int8","value":1e2}}}}}}`,
		`{"id":"o-1","in":"1m","priority":-1}`, `{"topic":"orders","id":"o-1","in":"1m"}`,
		`{"topic":"mails","id":"o-1","in":"1m"}`, `{"topic":"","id":"o-1","in":"1m"}`,
		`{"id":"o-1","in":"1m","headers":{"X-Duefleet-Due":"1"}}`, `{"id":"o-1","in":"1m","headers":{"CC":"q"}}`,
		`{"id":"o-1","in":"1m","headers":{"\n":1}}`,
		`{"id":"o-1","in":"1m","at":1}`, `{"id":"o-1"}`, `{"id":"o-1","in":"soon"}`, `{"id":"o-1","in":"36600d"}`,
		`{"id":"o-1","in":"106751d23h47m16.854775807s"}`,
		`{"id":"o-1","at":9223372036854775807}`, `{"id":"o-1","at":-9223372036854775808}`, `{"id":"o-1","at":1e3}`,
		`{"id":"o-1","at":"9999-12-31T23:59:59Z"}`,
		`{"id":"o-1","in":"1m","payload_base64":"AP/"}`, `{"id":"o-1","in":"1m","payload":"","payload_base64":""}`,
		`{"id":"o-1","recurrence":{"every":"1h","runs":3,"each":false}}`, `{"id":"o-1","in":"1m","series":"a"}`,
		`{"id":"o-1","in":"1m","recurrence":{"cron":"0 9 1 * *","zone":"UTC","until":1796119200000}}`,
		`{"id":"o-1\`, `{"id":"o-1\x"}`, "{\"id\":\"o\t1\"}", `{"id":"o-1",,}`, "{\"id\":\"\xff\",\"in\":\"1m\"}", `{"id":"o-1","in":"30m"} x`,
		`{"in":"1m","id":"` + strings.Repeat("x", 256) + `"}`, `{"id":"o-1","in":"1m","content_type":"` + strings.Repeat("x", 256) + `"}`,
	}
}

// FuzzLine: no line makes the decoder panic. A refused line gets a reason of one line. An
// accepted line is valid JSON, its request has the same fields and breaks no rule.
func FuzzLine(f *testing.F) {
	for _, line := range seedLines() {
		f.Add([]byte(line))
	}
	now := time.UnixMilli(1796119200000).UTC()
	d := &Decoder{Topic: "orders", MaxPayload: 1000, Now: func() time.Time { return now }}
	f.Fuzz(func(t *testing.T, line []byte) {
		req, err := d.Decode(line)
		if err != nil {
			if s := cli.OneLine(err.Error()); s == "" || strings.ContainsAny(s, "\n\r\x1b\u2028") || len(s) > 1000 {
				t.Fatalf("error %q", s)
			}
			return
		}
		var plain plainLine
		if err := json.Unmarshal(line, &plain); err != nil {
			t.Fatalf("taken, and not JSON: %v", err)
		}
		payload, contentType := plain.payload(t)
		if req.ID != plain.ID || string(req.Payload) != payload || req.ContentType != contentType || req.Topic != "orders" {
			t.Fatalf("got %+v, want %+v", req, plain)
		}
		if plain.Series != nil && req.AMQP == nil {
			plain.Headers = maps.Clone(plain.Headers)
			if plain.Headers == nil {
				plain.Headers = map[string]string{}
			}
			plain.Headers[task.HeaderSeries] = *plain.Series
		}
		if !maps.Equal(req.Headers, plain.Headers) {
			t.Fatalf("headers %q, want %q", req.Headers, plain.Headers)
		}
		if none := plain.In == nil && plain.At == nil; none && plain.Recurrence == nil || plain.In != nil && plain.At != nil {
			t.Fatalf("in %v and at %v", plain.In, plain.At)
		} else if none {
			plain.At = now.Format(time.RFC3339)
		}
		check.OK(t, errors.Join(
			task.CheckTopic(req.Topic), task.CheckID(req.ID), task.CheckPayload(req.Payload, 1000),
			task.CheckContentType(req.ContentType), task.CheckHeaders(req.Headers), task.CheckOptions(req.Options),
			checkMessage(req.AMQP), task.CheckDue(dueOf(t, plain, now), now),
		))
		if !utf8.ValidString(req.ID) || strings.ContainsRune(req.ID, utf8.RuneError) && !strings.Contains(string(line), "\ufffd") && !strings.Contains(strings.ToLower(string(line)), `\ufffd`) {
			t.Fatalf("ID %q was changed", req.ID)
		}
	})
}

// checkMessage checks the message of an intake, if there is one.
func checkMessage(a *task.AMQP) error {
	if a == nil {
		return nil
	}
	return amqpmsg.Check(a)
}

// dueOf returns the due time of an accepted line.
func dueOf(t *testing.T, plain plainLine, now time.Time) time.Time {
	t.Helper()
	var due time.Time
	var err error
	switch at := plain.At.(type) {
	case string:
		due, err = duetime.At(at)
	case float64: // exact up to 2^53 ms, far more than 100 years
		due = time.UnixMilli(int64(at))
	default:
		var in time.Duration
		in, err = duetime.Span(*plain.In)
		due = now.Add(in)
	}
	check.OK(t, err)
	return due
}
