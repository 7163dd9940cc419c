package amqpframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chunks is a connection that delivers its bytes in chunks, and then an error.
type chunks struct {
	net.Conn
	left  [][]byte
	after error
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, c.after
	}
	n := copy(p, c.left[0])
	if c.left[0] = c.left[0][n:]; len(c.left[0]) == 0 {
		c.left = c.left[1:]
	}
	if len(c.left) == 0 {
		return n, c.after // some connections return both
	}
	return n, nil
}

func newFrame(kind byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind, 0, 1}, uint32(len(payload)))
	return append(append(b, payload...), frameEnd)
}

// newHeader is the frame of the properties of a message: headers and a message-id.
func newHeader(table []byte) []byte {
	p := append([]byte{0, 60, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 4)
	p = binary.BigEndian.AppendUint16(p, flagHeaders|1<<7)
	p = append(binary.BigEndian.AppendUint32(p, uint32(len(table))), table...)
	return newFrame(typeHeader, append(p, "\x02id"...))
}

// wide is a table with an array of n empty values.
func wide(n int) []byte {
	b := binary.BigEndian.AppendUint32([]byte("\x01wA"), uint32(n))
	return append(b, strings.Repeat("V", n)...)
}

// deep is a table with n arrays in each other.
func deep(n int) []byte {
	b := []byte{}
	for range n {
		b = append(binary.BigEndian.AppendUint32([]byte("A"), uint32(len(b))), b...)
	}
	return append([]byte("\x01d"), b...)
}

// TestAnySplitGivesTheSameStream: reads of any sizes, above and below, pass the same bytes,
// and then the error of the connection below.
func TestAnySplitGivesTheSameStream(t *testing.T) {
	good, bad := newHeader(wide(8192)), newHeader(wide(8193))
	kinds := map[string][]byte{
		"method": newFrame(1, []byte("any method")), "heartbeat": newFrame(8, nil),
		"body": newFrame(3, []byte("body")), "large body": newFrame(3, bytes.Repeat([]byte("b"), 100_000)),
		"good": good, "bad": bad, "deep": newHeader(deep(33)), "large": newHeader(append([]byte("\x01xS\x00\x03\x00\x00"),
			bytes.Repeat([]byte{'x'}, 3<<16)...)),
	}
	names := slices.Sorted(maps.Keys(kinds))
	const frameMax = 128 << 10
	rapid.Check(t, func(t *rapid.T) {
		var sent, want []byte
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 12).Draw(t, "frames") {
			frame := kinds[name]
			sent = append(sent, frame...)
			if other := readable(frame, frameMax); frame[0] == typeHeader && other != nil {
				frame = other
			}
			want = append(want, frame...)
		}
		whole := rapid.Bool().Draw(t, "whole")
		if !whole {
			sent = sent[:rapid.IntRange(0, len(sent)).Draw(t, "cut")]
		}
		below := &chunks{after: errors.New("cut")}
		size := rapid.SampledFrom([]int{1, 3, 7, 8, 100, 4096, 70_000, 1 << 20})
		for rest := sent; len(rest) > 0; {
			n := min(size.Draw(t, "chunk"), len(rest))
			if len(rest) > 1<<16 {
				n = min(max(n, 2000), len(rest)) // in good time
			}
			below.left, rest = append(below.left, rest[:n]), rest[n:]
		}
		c := New(below, nil)
		c.SetFrameMax(frameMax)
		var got []byte
		p := make([]byte, size.Draw(t, "read"))
		for {
			n, err := c.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				if !errors.Is(err, below.after) {
					t.Fatalf("got %v", err)
				}
				break
			}
		}
		if whole && !bytes.Equal(got, want) || !bytes.HasPrefix(want, got) {
			t.Fatalf("%d bytes of %d passed as %d of %d", len(sent), len(want), len(got), len(want))
		}
	})
}

// TestWhatIsReplaced: only the headers are, by the limits of amqp091-go.
func TestWhatIsReplaced(t *testing.T) {
	rows := map[string]struct {
		frame    []byte
		frameMax int
		says     string // "": it passes
		kept     bool
		id       bool // its message-id
	}{
		"8,192 elements":       {newHeader(wide(8192)), 1 << 17, "", true, true},
		"8,193 elements":       {newHeader(wide(8193)), 1 << 17, "more than 8192 elements", true, true},
		"32 deep":              {newHeader(deep(32)), 1 << 17, "", true, true},
		"33 deep":              {newHeader(deep(33)), 1 << 17, "deeper than 32", true, true},
		"an unknown type":      {newHeader([]byte("\x01kZ")), 1 << 17, "unknown type", true, true},
		"a short value":        {newHeader([]byte("\x01kl123")), 1 << 17, "cut short", true, true},
		"as large as possible": {newHeader(wide(4000)), len(newHeader(wide(4000))), "", true, true},
		"larger than possible": {newHeader(wide(5000)), 4999, "at most 4999 are possible", false, true},
		"no limit":             {newHeader(wide(9000)), 0, "more than 8192 elements", true, true},
		"no frame end":         {append(newHeader(wide(9000))[:9000], 1), 1 << 17, "", true, true},
		"too short":            {newFrame(typeHeader, []byte{0, 60}), 1 << 17, "", true, true},
		"an ID is cut short": {newFrame(typeHeader, append(make([]byte, 12), "\x00\x80\x09id"...)), 1 << 17,
			"a property is cut short", false, false},
		"headers are cut short": {newFrame(typeHeader, append(make([]byte, 12), "\xa0\x00\x01c\x00\x00\x00\x09"...)), 1 << 17,
			"a property is cut short", false, false},
	}
	for name, row := range rows {
		got := readable(row.frame, row.frameMax)
		if row.says == "" {
			if got != nil {
				t.Errorf("%s: replaced", name)
			}
			continue
		}
		if !bytes.Contains(got, []byte(row.says)) || bytes.Contains(got, []byte(HeaderTable)) != row.kept ||
			bytes.HasSuffix(got, []byte("\x02id\xce")) != row.id {
			t.Errorf("%s: got %d bytes: %.200q", name, len(got), got)
			continue
		}
		if again := readable(got, row.frameMax); again != nil {
			t.Errorf("%s: replaced twice: %.200q", name, again)
		}
	}
}

// TestAnIntegerOf64BitsGetsTheNameThatTheLibraryKnows, at any depth. A text with that letter
// stays as it is.
func TestAnIntegerOf64BitsGetsTheNameThatTheLibraryKnows(t *testing.T) {
	t.Parallel()
	table := func(tag string) []byte {
		return []byte("\x01L" + tag + "LLLLLLLL" + "\x01aA\x00\x00\x00\x09" + tag + "12345678" +
			"\x01tF\x00\x00\x00\x0b\x01n" + tag + "12345678" + "\x01sS\x00\x00\x00\x02LL")
	}
	got, err := io.ReadAll(New(&chunks{left: [][]byte{newHeader(table("L"))}, after: io.EOF}, nil))
	if err != nil || !bytes.Equal(got, newHeader(table("l"))) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestMemoryIsBounded: properties above 16 MiB aren't read.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	frame := newHeader(nil)
	binary.BigEndian.PutUint32(frame[frameSize:], maxHeader)
	method := newFrame(1, []byte("m"))
	c := New(&chunks{left: [][]byte{append(method, frame...)}, after: io.EOF}, nil)
	got, err := io.ReadAll(c)
	if err == nil || !strings.Contains(err.Error(), "at most 16777216 can be read") || !bytes.Equal(got, method) {
		t.Errorf("passed %d bytes, then %v", len(got), err)
	}
}

// TestMarksAreFound: among the headers that the library hands out.
func TestMarksAreFound(t *testing.T) {
	if err := Unreadable(map[string]any{HeaderUnreadable: "why"}); err == nil || err.Error() != "why" {
		t.Errorf("got %v", err)
	}
	if err := Unreadable(map[string]any{"x": "y"}); err != nil {
		t.Errorf("got %v", err)
	}
}

// endless repeats the frames of one delivery.
type endless struct {
	net.Conn
	frames []byte
	at     int
}

func (e *endless) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		some := copy(p[n:], e.frames[e.at:])
		n, e.at = n+some, (e.at+some)%len(e.frames)
	}
	return n, nil
}

// BenchmarkRead reads small messages as amqp091-go does, 4 KiB at a time: without a Conn, with
// one, and with a gate that admits them.
func BenchmarkRead(b *testing.B) {
	table := []byte("\x07x-delayI\x00\x00\x01\xf4\x01aS\x00\x00\x00\x04text" +
		"\x01bl12345678\x05arrayA\x00\x00\x00\x0aI1234I1234")
	delivery := slices.Concat(newDelivery(1, "a-consumer-tag-of-thirty-bytes", table, make([]byte, 100))...)
	gate := NewGate()
	defer gate.Watch("a-consumer-tag-of-thirty-bytes", func(int, int) (bool, <-chan struct{}) { return true, nil })()
	for name, conn := range map[string]func() net.Conn{
		"direct": func() net.Conn { return &endless{frames: delivery} },
		"conn":   func() net.Conn { return New(&endless{frames: delivery}, nil) },
		"gate":   func() net.Conn { return New(&endless{frames: delivery}, gate) },
	} {
		b.Run(name, func(b *testing.B) {
			c, p := conn(), make([]byte, 4096)
			b.ReportAllocs()
			read := 0
			for messages := 0; messages < b.N; {
				n, err := c.Read(p)
				if err != nil {
					b.Fatal(err)
				}
				read += n
				messages = read / len(delivery)
			}
		})
	}
}
