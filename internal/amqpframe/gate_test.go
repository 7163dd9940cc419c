package amqpframe

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// newDelivery is the frames of a message for a consumer.
func newDelivery(channel uint16, tag string, table, body []byte) (frames [][]byte) {
	method := binary.BigEndian.AppendUint32(nil, basicDeliver)
	method = append(append(method, byte(len(tag))), tag...)
	method = append(method, "\x00\x00\x00\x00\x00\x00\x00\x07\x00\x01e\x03key"...)
	frames = [][]byte{newFrame(typeMethod, method), newHeader(table)}
	binary.BigEndian.PutUint64(frames[1][bodyAt:], uint64(len(body)))
	for part := range slices.Chunk(body, 5000) {
		frames = append(frames, newFrame(typeBody, part))
	}
	for _, f := range frames {
		binary.BigEndian.PutUint16(f[frameChannel:], channel)
	}
	return frames
}

// flow is the messages of one channel.
type flow struct {
	send, pass [][]byte // frames; nil for one that doesn't pass
	answers    []bool   // of the gate

	waits []int // how often each message has to wait before its answer

	asked []int // the bytes that it was asked about
	sizes []int // these bytes
}

func (f *flow) admit(body, properties int) (admitted bool, later <-chan struct{}) {
	if n := len(f.asked); f.waits[n] > 0 {
		f.waits[n]--
		now := make(chan struct{})
		close(now)
		return false, now
	}
	f.asked = append(f.asked, body+properties)
	return f.answers[len(f.asked)-1], nil
}

// add adds a message. One that can't be read is replaced as without a gate.
func (f *flow) add(frames [][]byte, admitted bool, waits int) {
	f.answers, f.waits = append(f.answers, admitted), append(f.waits, waits)
	f.sizes = append(f.sizes, len(frames[1])+int(binary.BigEndian.Uint64(frames[1][bodyAt:]))) //nolint:gosec // small
	for i, frame := range frames {
		f.send = append(f.send, frame)
		other := frame
		switch {
		case i == 1 && !admitted:
			other = without(frame)
		case i == 1 && readable(frame, 0) != nil:
			other = readable(frame, 0)
		case i > 1 && !admitted:
			other = nil
		}
		f.pass = append(f.pass, other)
	}
}

// TestAGateKeepsMessagesOut: with messages on several channels at the same time and any split
// of the stream. It is asked about each message until that doesn't have to wait, in their order.
func TestAGateKeepsMessagesOut(t *testing.T) {
	tags := []string{"other", "a", strings.Repeat("b", 255)}
	rapid.Check(t, func(t *rapid.T) {
		gate, flows := NewGate(), make([]flow, len(tags))
		for n := range tags[1:] {
			defer gate.Watch(tags[n+1], flows[n+1].admit)()
		}
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			n := rapid.IntRange(0, len(tags)-1).Draw(t, "channel")
			table := rapid.SampledFrom([][]byte{[]byte("\x01kV"), []byte("\x01kZ")}).Draw(t, "table") // a good and a bad one
			body := make([]byte, rapid.SampledFrom([]int{0, 1, 4999, 5000, 12_000}).Draw(t, "body"))
			admitted := n == 0 || rapid.Bool().Draw(t, "admitted")
			waits := rapid.IntRange(0, 2).Draw(t, "waits")
			flows[n].add(newDelivery(uint16(n+1), tags[n], table, body), admitted, waits) //nolint:gosec // small
		}
		var sent, want []byte
		for at := make([]int, len(flows)); ; {
			left := []int{}
			for n := range flows {
				if at[n] < len(flows[n].send) {
					left = append(left, n)
				}
			}
			if len(left) == 0 {
				break
			}
			n := rapid.SampledFrom(left).Draw(t, "next")
			sent, want = append(sent, flows[n].send[at[n]]...), append(want, flows[n].pass[at[n]]...)
			at[n]++
		}
		below, size := &chunks{after: io.EOF}, rapid.SampledFrom([]int{1, 3, 7, 100, 4096, 70_000})
		for rest := sent; len(rest) > 0; {
			n := min(max(size.Draw(t, "chunk"), len(rest)/1000), len(rest))
			below.left, rest = append(below.left, rest[:n]), rest[n:]
		}
		got, err := io.ReadAll(New(below, gate))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d passed as %d of %d: %v", len(sent), len(sent), len(got), len(want), err)
		}
		for n := range tags[1:] {
			if f := flows[n+1]; !slices.Equal(f.asked, f.sizes) {
				t.Fatalf("asked about %v, want %v", f.asked, f.sizes)
			}
		}
	})
}

// TestAForgottenConsumerHasNoGate, and neither has a message that was asked for.
func TestAForgottenConsumerHasNoGate(t *testing.T) {
	t.Parallel()
	gate := NewGate()
	asked := func(int, int) (bool, <-chan struct{}) { t.Error("asked"); return false, nil }
	gate.Watch("a", asked)()
	defer gate.Watch("b", asked)()
	got := newDelivery(1, "b", nil, []byte("body"))
	const getOK = 71
	got[0][frameHead+3] = getOK
	frames := slices.Concat(slices.Concat(newDelivery(1, "a", nil, []byte("body"))...), slices.Concat(got...))
	passed, err := io.ReadAll(New(&chunks{left: [][]byte{frames}, after: io.EOF}, gate))
	if err != nil || !bytes.Equal(passed, frames) {
		t.Errorf("%d bytes passed as %d: %v", len(frames), len(passed), err)
	}
}

// TestAHugeBodyThatIsNotAdmittedTakesNoMemory: it is larger than what is held at once.
func TestAHugeBodyThatIsNotAdmittedTakesNoMemory(t *testing.T) {
	t.Parallel()
	gate := NewGate()
	defer gate.Watch("a", func(int, int) (bool, <-chan struct{}) { return false, nil })()
	frames := newDelivery(1, "a", nil, nil)
	body := newFrame(typeBody, make([]byte, 10<<20))
	binary.BigEndian.PutUint64(frames[1][bodyAt:], 10<<20)
	next := newFrame(typeMethod, []byte("next"))
	c := New(&chunks{left: [][]byte{slices.Concat(frames...), body, next}, after: io.EOF}, gate)
	passed, err := io.ReadAll(c)
	if want := len(frames[0]) + len(without(frames[1])) + len(next); err != nil || len(passed) != want {
		t.Errorf("%d bytes passed, want %d: %v", len(passed), want, err)
	}
	if len(c.store) > bufferSize {
		t.Errorf("held %d bytes", len(c.store))
	}
}
