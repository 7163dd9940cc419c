package amqpframe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// newWaiting returns a connection whose server sends these frames, and whose gate has the second
// message for the consumer "a" wait for later.
func newWaiting(t *testing.T, later <-chan struct{}, frames ...[]byte) (c *Conn, server net.Conn) {
	t.Helper()
	gate, admitted := NewGate(), 0
	t.Cleanup(gate.Watch("a", func(int, int) (bool, <-chan struct{}) {
		if admitted == 1 {
			select {
			case <-later:
			default:
				return false, later
			}
		}
		admitted++
		return true, nil
	}))
	client, server := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	go func() { _, _ = server.Write(slices.Concat(frames...)) }()
	return New(client, gate), server
}

// TestAMessageThatWaitsHoldsUpNothingBefore: what was sent before it is read. It is read itself
// once it may be, and what is behind it, too. The silence meanwhile isn't the server's.
func TestAMessageThatWaitsHoldsUpNothingBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := slices.Concat(newDelivery(1, "a", nil, []byte("first"))...)
		second := newDelivery(1, "a", nil, []byte("second"))
		later := make(chan struct{})
		c, server := newWaiting(t, later, first, slices.Concat(second...))
		const silence = 30 * time.Second
		check.OK(t, c.SetReadDeadline(time.Now().Add(silence)))
		before := make([]byte, len(first)+len(second[0]))
		_, err := io.ReadFull(c, before)
		check.OK(t, err)
		if want := slices.Concat(first, second[0]); !bytes.Equal(before, want) {
			t.Errorf("read %q, want %q", before, want)
		}
		go func() {
			<-time.After(10 * silence)
			close(later)
			<-time.After(silence / 2)
			_, _ = server.Write(newFrame(typeMethod, []byte("next")))
		}()
		next := newFrame(typeMethod, []byte("next"))
		after := make([]byte, len(second[1])+len(second[2])+len(next))
		_, err = io.ReadFull(c, after)
		check.OK(t, err)
		if want := slices.Concat(second[1], second[2], next); !bytes.Equal(after, want) {
			t.Errorf("read %q, want %q", after, want)
		}
		if _, err := c.Read(after); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a silent server: got %v", err)
		}
	})
}

// TestAReadThatWaitsEndsWithTheConnection: nobody says that the message may be read.
func TestAReadThatWaitsEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := slices.Concat(newDelivery(1, "a", nil, []byte("first"))...)
		c, _ := newWaiting(t, make(chan struct{}), first, first)
		go func() {
			<-time.After(time.Hour)
			check.OK(t, c.Close())
		}()
		if _, err := io.ReadAll(c); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
