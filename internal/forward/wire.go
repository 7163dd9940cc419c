package forward

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wireBuffer is the number of bytes that wait while corked. A smaller buffer costs system
// calls; a larger one keeps the broker idle while a batch is encoded.
const wireBuffer = 16 << 10

// alertTimeout bounds the wait for a TLS alert that is on its way.
const alertTimeout = 100 * time.Millisecond

// wire is the transport under one AMQP connection. It adds two things that amqp091 lacks:
// a deadline for every write, and corking.
//
// A broker under a memory or disk alarm stops reading, and a blocked write would hold the
// library's locks for ever. Corking is needed because the library flushes after each
// message. It happens above TLS, so that a batch becomes few TLS records as well as few
// system calls.
type wire struct {
	net.Conn          // with TLS, the TLS connection
	raw      net.Conn // the TCP connection; closing it never blocks
	timeout  time.Duration

	why atomic.Pointer[error] // why this program closed it; nil if it did not

	mu    sync.Mutex
	buf   []byte
	corks int
	err   error
}

func newWire(conn, raw net.Conn, timeout time.Duration) *wire {
	return &wire{Conn: conn, raw: raw, timeout: timeout, buf: make([]byte, 0, wireBuffer)}
}

// Write sends p, or buffers it while corked. So it may report success for bytes that fail
// later. The connection is then lost, and nobody knows how much of them arrived, as with
// bytes in the kernel's buffer.
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

// cork starts buffering small writes. Corks of several topics overlap.
func (w *wire) cork() {
	w.mu.Lock()
	w.corks++
	w.mu.Unlock()
}

// uncork sends the whole buffer, other topics' writes included. So no batch waits for
// another to end, and nothing waits longer than one batch.
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

// sendLocked ends the connection when a write fails. The broker can't understand anything
// after a partial write, and the library doesn't close on a failed flush.
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

// verdict returns the TLS alert that the broker sent before it closed, if it sent one,
// else failed. A broker that refuses the client's certificate cuts the connection during
// the first write.
func (w *wire) verdict(failed error) error {
	if w.Conn == w.raw {
		return failed
	}
	_ = w.SetReadDeadline(time.Now().Add(alertTimeout)) // no use for the error
	_, err := w.Read(make([]byte, 1))
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return failed
}

// failure returns the error of the write that ended the connection, or nil. Call it after
// abort: it waits for a write in progress.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// cut is abort with a reason. The first reason counts: the errors that reads and writes
// return afterwards are this program's own doing.
func (w *wire) cut(why error) {
	w.why.CompareAndSwap(nil, &why)
	w.abort()
}

// reason returns why this program closed the connection; nil if it did not.
func (w *wire) reason() error {
	if why := w.why.Load(); why != nil {
		return *why
	}
	return nil
}

// abort closes the TCP connection, which ends every pending read and write.
func (w *wire) abort() { _ = w.raw.Close() }

// Close closes the TCP connection; the library calls it. It sends no TLS goodbye first,
// because that is one more write that can block.
func (w *wire) Close() error { return w.raw.Close() }
