package amqpmsg

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// every has each property and each type of header, with bytes written by hand.
func every() (Message, string) {
	m := Message{
		RoutingKey: "a.b",
		Properties: Properties{
			ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 9,
			CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "o-1",
			Timestamp: time.Unix(1796119200, 0).UTC(), Type: "t", UserID: "guest", AppID: "app",
		},
		Headers: map[string]any{
			"A": []any{int32(1), "x", nil}, "B": uint8(255), "D": Decimal{Scale: 2, Value: -1},
			"F": map[string]any{"k": true}, "I": int32(-2), "S": "é", "T": time.Unix(-1, 0).UTC(),
			"V": nil, "b": int8(-1), "d": -0.5, "f": float32(1.5), "i": uint32(math.MaxUint32),
			"l": int64(math.MinInt64), "s": int16(-2), "t": true, "u": uint16(65535), "x": []byte{0, 255},
		},
		Body: []byte("payload"),
	}
	headers := "0141" + "41" + "0000000c" + "49" + "00000001" + "53" + "00000001" + "78" + "56" +
		"0142" + "42" + "ff" +
		"0144" + "44" + "02" + "ffffffff" +
		"0146" + "46" + "00000004" + "016b" + "74" + "01" +
		"0149" + "49" + "fffffffe" +
		"0153" + "53" + "00000002" + "c3a9" +
		"0154" + "54" + "ffffffffffffffff" +
		"0156" + "56" +
		"0162" + "62" + "ff" +
		"0164" + "64" + "bfe0000000000000" +
		"0166" + "66" + "3fc00000" +
		"0169" + "69" + "ffffffff" +
		"016c" + "6c" + "8000000000000000" +
		"0173" + "73" + "fffe" +
		"0174" + "74" + "01" +
		"0175" + "75" + "ffff" +
		"0178" + "78" + "00000002" + "00ff"
	properties := "fff8" +
		"0a" + "746578742f706c61696e" + "04" + "677a6970" +
		length(headers) + headers +
		"02" + "09" + "0163" + "0172" + "053630303030" + "036f2d31" + "000000006b0e9aa0" +
		"0174" + "056775657374" + "03617070"
	return m, "02" + "03612e62" + length(properties) + properties + "7061796c6f6164"
}

func length(digits string) string { return fmt.Sprintf("%08x", len(digits)/2) }

func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBytesOfAMessage(t *testing.T) {
	t.Parallel()
	full, digits := every()
	for name, c := range map[string]struct {
		message Message
		digits  string
	}{
		"every property and type": {full, digits},
		"nothing":                 {Message{Body: []byte{}}, "02" + "00" + "00000002" + "0000"},
		"payload alone":           {Message{Body: []byte{2}}, "02" + "00" + "00000002" + "0000" + "02"},
		"the epoch is a timestamp": {
			Message{Properties: Properties{Timestamp: time.Unix(0, 0).UTC()}, Body: []byte{}},
			"02" + "00" + "0000000a" + "0040" + "0000000000000000",
		},
		"empty containers": {
			Message{Headers: map[string]any{"": []any{}, "a": map[string]any{}, "b": []byte{}, "c": ""}, Body: []byte{}},
			"02" + "00" + "00000021" + "2000" + "0000001b" +
				"00" + "41" + "00000000" + "0161" + "46" + "00000000" +
				"0162" + "78" + "00000000" + "0163" + "53" + "00000000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := Encode(c.message)
			if err != nil || hex.EncodeToString(b) != c.digits {
				t.Errorf("encoded %x, %v\nwant    %s", b, err, c.digits)
			}
			m, err := Decode(unhex(t, c.digits))
			if err != nil || !reflect.DeepEqual(m, c.message) {
				t.Errorf("decoded %#v, %v\nwant    %#v", m, err, c.message)
			}
		})
	}
}

func messages() *rapid.Generator[Message] {
	text := rapid.StringN(0, -1, 255)
	whole := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64().Draw(t, "seconds"), 0).UTC() })
	return rapid.Custom(func(t *rapid.T) Message {
		m := Message{
			RoutingKey: text.Draw(t, "routing key"),
			Properties: Properties{
				ContentType: text.Draw(t, "content type"), ContentEncoding: text.Draw(t, "content encoding"),
				DeliveryMode: rapid.Byte().Draw(t, "delivery mode"), Priority: rapid.Byte().Draw(t, "priority"),
				CorrelationID: text.Draw(t, "correlation"), ReplyTo: text.Draw(t, "reply to"),
				Expiration: text.Draw(t, "expiration"), MessageID: text.Draw(t, "message id"),
				Timestamp: whole.Draw(t, "timestamp"), Type: text.Draw(t, "type"),
				UserID: text.Draw(t, "user"), AppID: text.Draw(t, "app"),
			},
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		if headers := tables(3).Draw(t, "headers"); len(headers) > 0 {
			m.Headers = headers
		}
		return m
	})
}

func tables(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.StringN(0, -1, 255), values(depth), 0, 6)
}

// values draws a value of one of the types.
func values(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Bool().AsAny(), rapid.Int8().AsAny(), rapid.Uint8().AsAny(), rapid.Int16().AsAny(),
		rapid.Uint16().AsAny(), rapid.Int32().AsAny(), rapid.Uint32().AsAny(), rapid.Int64().AsAny(),
		rapid.Float32().AsAny(), rapid.Float64().AsAny(), rapid.String().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(), rapid.Just[any](nil),
		rapid.Custom(func(t *rapid.T) any { return time.Unix(rapid.Int64().Draw(t, "seconds"), 0).UTC() }),
		rapid.Custom(func(t *rapid.T) any {
			return Decimal{Scale: rapid.Byte().Draw(t, "scale"), Value: rapid.Int32().Draw(t, "value")}
		}),
	}
	if depth > 0 {
		one := rapid.Deferred(func() *rapid.Generator[any] { return values(depth - 1) })
		kinds = append(kinds, rapid.SliceOfN(one, 0, 4).AsAny(),
			rapid.Deferred(func() *rapid.Generator[map[string]any] { return tables(depth - 1) }).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, m) {
			t.Fatalf("back: %#v\nwas:  %#v", back, m)
		}
		if again, err := Encode(Message{back.RoutingKey, back.Properties, maps.Clone(back.Headers), back.Body}); err != nil ||
			!slices.Equal(again, b) {
			t.Fatalf("encoded again: %x, %v\nfirst:         %x", again, err, b)
		}
	})
}

// NaN isn't equal to itself, so the bits are compared.
func TestNaNsKeepTheirBits(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{
		"66" + "7f800001", "66" + "ffc12345", "64" + "7ff0000000000001", "64" + "fff8000000000abc",
	} {
		entry := "0161" + tag
		properties := "2000" + length(entry) + entry
		b := unhex(t, "02"+"00"+length(properties)+properties)
		m, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Encode(m); err != nil || !slices.Equal(again, b) {
			t.Errorf("%x, %v; want %x", again, err, b)
		}
	}
}

// nested returns arrays within arrays; 0 stands for an empty one.
func nested(depth int) any {
	a := []any{}
	for range depth {
		a = []any{a}
	}
	return a
}

func TestWhatAMQPCantCarryIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		message Message
		want    string
	}{
		"routing key":     {Message{RoutingKey: long}, "routing_key: must have at most 255 bytes; got 256 bytes"},
		"message id":      {Message{Properties: Properties{MessageID: long}}, "message_id: must have at most 255 bytes"},
		"name":            {Message{Headers: map[string]any{long: 1}}, "headers: the name of an entry must have at most 255"},
		"type":            {Message{Headers: map[string]any{"a": 1}}, "headers.a: must be of one of the types that task."},
		"type inside":     {Message{Headers: map[string]any{"a": []any{map[string]any{"b": uint64(1)}}}}, "headers.a.0.b: "},
		"long header":     {Message{Headers: map[string]any{"a": strings.Repeat(long, 505)}}, "a: must have at most 129024"},
		"long headers":    {Message{Headers: map[string]any{"a": make([]byte, 65e3), "b": make([]byte, 65e3)}}, "one frame"},
		"deep":            {Message{Headers: map[string]any{"a": nested(32)}}, "headers must not nest deeper than 32"},
		"many in array":   {Message{Headers: map[string]any{"a": make([]any, 8193)}}, "headers.a: must have at most 8192"},
		"many in a table": {Message{Headers: manyHeaders(8193)}, "headers: must have at most 8192 elements; got 8193"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if b, err := Encode(c.message); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d bytes, %v; want an error with %q", len(b), err, c.want)
			}
		})
	}
	if _, err := Encode(Message{Headers: map[string]any{"a": nested(31), "b": make([]any, 8192)}}); err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

func manyHeaders(n int) map[string]any {
	t := make(map[string]any, n)
	for i := range n {
		t[fmt.Sprint(i)] = nil
	}
	return t
}

func TestHostileBytesAreAnError(t *testing.T) {
	t.Parallel()
	headers := func(entries string) string {
		properties := "2000" + length(entries) + entries
		return "02" + "00" + length(properties) + properties
	}
	deep := ""
	for range 33 {
		deep = "41" + length(deep) + deep
	}
	for name, c := range map[string]struct {
		digits string
		want   error
	}{
		"empty":                    {"", errShort},
		"another version":          {"01" + "00" + "00000002" + "0000", nil},
		"huge properties":          {"02" + "00" + "ffffffff" + "0000", nil},
		"long properties":          {"02" + "00" + "00000009" + "0000", errShort},
		"properties without flags": {"02" + "00" + "00000000", errShort},
		"behind the properties":    {"02" + "00" + "00000003" + "000000", nil},
		"unknown property":         {"02" + "00" + "00000003" + "000400", errFlags},
		"more flags":               {"02" + "00" + "00000004" + "00010000", errFlags},
		"unknown type":             {headers("0161" + "7a"), nil},
		"huge table":               {"02" + "00" + "00000006" + "2000" + "ffffffff", errLength},
		"huge text":                {headers("0161" + "53" + "7fffffff"), errLength},
		"huge array":               {headers("0161" + "41" + "ffffffff"), errLength},
		"value beyond its table":   {headers("0161" + "6c" + "00"), errShort},
		"a name alone":             {headers("0161"), errShort},
		"twice":                    {headers("0161" + "56" + "0161" + "56"), errTwice},
		"deep":                     {headers("0161" + deep), errDeep},
		"many":                     {headers("0161" + "41" + "00002001" + strings.Repeat("56", 8193)), errMany},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := Decode(unhex(t, c.digits))
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%#v, %v; want %v", m, err, c.want)
			}
		})
	}
}

// Every prefix of a message is an error or a message with a shorter payload.
func TestAMessageThatIsCutShort(t *testing.T) {
	t.Parallel()
	full, digits := every()
	b := unhex(t, digits)
	head := len(b) - len(full.Body)
	for n := range b {
		m, err := Decode(b[:n])
		if n < head && err == nil {
			t.Errorf("%d bytes: %#v", n, m)
		}
		if n >= head && (err != nil || len(m.Body) != n-head) {
			t.Errorf("%d bytes: %v with a body of %d", n, err, len(m.Body))
		}
	}
}

func TestRandomBytesNeverPanic(t *testing.T) {
	t.Parallel()
	_, digits := every()
	whole := unhex(t, digits)
	rapid.Check(t, func(t *rapid.T) {
		b := slices.Clone(whole)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if m, err := Decode(b); err == nil {
			if _, err := Encode(m); err != nil {
				t.Fatalf("decoded from %x, but: %v", b, err)
			}
		}
	})
}

// Lengths that lie can't make Decode allocate much more than the input has bytes.
//
//nolint:paralleltest // it measures the memory that the process allocates
func TestLyingLengthsAllocateLittle(t *testing.T) {
	nested := "0161" + "41" + "7fffffff"
	properties := "2000" + "7fffffff" + nested
	b := unhex(t, "02"+"00"+length(properties)+properties)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		if _, err := Decode(b); err == nil {
			t.Fatal("no error")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 1000; each > 4096 {
		t.Errorf("%d bytes for a message of %d", each, len(b))
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	m, _ := every()
	encoded, err := Encode(m)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
