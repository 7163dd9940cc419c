package forward

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wireBuffer is how many bytes wait at most while corked. Smaller buffers cost
// system calls, larger ones keep the broker idle while a batch is encoded.
const wireBuffer = 16 << 10

// alertTimeout is how long an alert may take that is on its way already.
const alertTimeout = 100 * time.Millisecond

// wire is the transport under one AMQP connection. It adds what amqp091 lacks:
// a deadline for every write, since a broker under a memory or disk alarm stops
// reading and a blocked write would hold the library's locks for ever; and
// corking, since the library flushes after each message. It sits above TLS, so
// that a batch becomes few records as well as few system calls.
type wire struct {
	net.Conn          // with TLS, the TLS connection
	raw      net.Conn // the TCP connection; closing it never blocks
	timeout  time.Duration

	why atomic.Pointer[error] // why this program closed it; nil: it did not

	mu    sync.Mutex
	buf   []byte
	corks int
	err   error
}

func newWire(conn, raw net.Conn, timeout time.Duration) *wire {
	return &wire{Conn: conn, raw: raw, timeout: timeout, buf: make([]byte, 0, wireBuffer)}
}

// Write sends p, or keeps it while corked: then it may report success for what
// fails later. The connection is lost in that case, and what was kept on it
// is as unknown as what the kernel kept.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.corks > 0 && len(w.buf)+len(p) <= wireBuffer {
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	w.flushLocked()
	if w.corks > 0 && len(p) < wireBuffer {
		w.buf = append(w.buf, p...)
	} else {
		w.sendLocked(p)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// cork starts keeping small writes. Corks of several topics overlap.
func (w *wire) cork() {
	w.mu.Lock()
	w.corks++
	w.mu.Unlock()
}

// uncork sends all that was kept, by whomever, so that no batch waits for
// another's end and nothing waits longer than one batch.
func (w *wire) uncork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corks--
	w.flushLocked()
}

func (w *wire) flushLocked() {
	if len(w.buf) > 0 {
		w.sendLocked(w.buf)
		w.buf = w.buf[:0]
	}
}

// sendLocked ends the connection when a write fails: nothing after a partial
// write could be understood, and the library doesn't close on a failed flush.
func (w *wire) sendLocked(p []byte) {
	if w.err != nil {
		return
	}
	err := w.Conn.SetWriteDeadline(time.Now().Add(w.timeout))
	if err == nil {
		_, err = w.Conn.Write(p)
	}
	if err != nil {
		w.err = fmt.Errorf("write to %s: %w", w.raw.RemoteAddr(), w.verdict(err))
		w.abort()
	}
}

// verdict is the alert that a broker sent before it ended TLS, if it did: one
// that refuses the client's certificate cuts the connection under the first write.
func (w *wire) verdict(failed error) error {
	if w.Conn == w.raw {
		return failed
	}
	_ = w.SetReadDeadline(time.Now().Add(alertTimeout)) // nothing is left to be done about it
	_, err := w.Read(make([]byte, 1))
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return failed
}

// failure is the write that ended the connection, or nil. Call it after abort:
// it waits for a write that is under way.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// cut is abort for a reason. The first one counts: what reads and writes end with
// afterwards is this program's own doing.
func (w *wire) cut(why error) {
	w.why.CompareAndSwap(nil, &why)
	w.abort()
}

// reason is why this program closed the connection; nil if it did not.
func (w *wire) reason() error {
	if why := w.why.Load(); why != nil {
		return *why
	}
	return nil
}

// abort closes the TCP connection, which ends every pending read and write.
func (w *wire) abort() { _ = w.raw.Close() }

// Close is what the library calls. It doesn't say goodbye on TLS first: that
// is one more write that can block.
func (w *wire) Close() error { return w.raw.Close() }
