package forward

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// tcpPair is a wire and its peer.
func tcpPair(t *testing.T, timeout time.Duration) (*wire, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	check.OK(t, err)
	far, err := listener.Accept()
	check.OK(t, err)
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return newWire(near, near, timeout), far
}

func TestWireKeepsWhatIsCorked(t *testing.T) {
	t.Parallel()
	w, peer := tcpPair(t, check.Hang)
	var sent []byte
	write := func(p []byte) {
		t.Helper()
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		sent = append(sent, p...)
	}
	arrives := func(n int) {
		t.Helper()
		got := make([]byte, n)
		_ = peer.SetReadDeadline(time.Now().Add(check.Hang))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, sent[:n]) {
			t.Fatalf("read %q: %v, want %q", got, err, sent[:n])
		}
		sent = sent[n:]
	}
	silent := func() {
		t.Helper()
		_ = peer.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := peer.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("bytes were sent while corked")
		}
	}
	write([]byte("at once"))
	arrives(7)
	w.cork()
	w.cork()
	write([]byte("later"))
	write([]byte(" and together"))
	silent()
	w.uncork() // the other cork holds nobody up
	arrives(18)
	write([]byte("still corked"))
	silent()
	write(bytes.Repeat([]byte("large"), wireBuffer))
	arrives(12 + 5*wireBuffer)
	write(bytes.Repeat([]byte("s"), wireBuffer/2))
	write(bytes.Repeat([]byte("t"), wireBuffer/2+1))
	arrives(wireBuffer / 2)
	silent()
	w.uncork()
	arrives(wireBuffer/2 + 1)
	write([]byte("at once"))
	arrives(7)
}

func TestWireEndsAWriteThatBlocks(t *testing.T) {
	t.Parallel()
	EndBlockedWrite(t, 200*time.Millisecond)
}

// EndBlockedWrite returns how long it took until a write was ended.
func EndBlockedWrite(t *testing.T, timeout time.Duration) time.Duration {
	t.Helper()
	w, _ := tcpPair(t, timeout) // the peer reads nothing
	began := time.Now()
	for range 10_000 {
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	took := time.Since(began)
	if w.failure() == nil {
		t.Fatalf("no error after %v, want one after %v", took, timeout)
	}
	if _, err := w.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want the connection closed on this side", err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a write after the connection ended succeeded")
	}
	return took
}

// TestWhatIsGivenUpKeepsItsPlaceAndNoPayload: otherwise a queue that never confirms would
// keep half a window of payloads in memory for as long as the channel lasts.
func TestWhatIsGivenUpKeepsItsPlaceAndNoPayload(t *testing.T) {
	t.Parallel()
	c := newConfirms(2, time.Hour)
	m := &Message{Task: task.Task{ID: "o-1", Payload: []byte("payload")}}
	seq, v := c.place(m, time.Nanosecond, 1)
	if v != placed {
		t.Fatalf("not placed: %v", v)
	}
	for c.since(time.Now()) <= c.slot(seq).deadline { // its deadline passes
	}
	results := c.expire(nil)
	if len(results) != 1 || results[0].Message != m || string(m.Task.Payload) != "payload" {
		t.Fatalf("given up: %+v", results)
	}
	kept := c.slot(seq).message
	if kept == nil || kept.Task.ID != "o-1" {
		t.Fatalf("its place holds %+v: a late return would not be known for what it is", kept)
	}
	if kept.Task.Payload != nil {
		t.Error("its place keeps the payload")
	}
}
