package redisdial

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// refusalPause is the time between two connections to a server that refuses the password.
const refusalPause = time.Second

// gate limits the connections to a server that refuses the password: one a second to each
// server. Without it, go-redis would make a connection for each call and send the
// password twice on each.
type gate struct {
	mu       sync.Mutex
	refusals map[string]*refusal // by address
}

// refusal is a server's answer to a password.
type refusal struct {
	text string    // the server's words
	next time.Time // when another connection may try
}

// Refused is the error for a connection that the gate refuses or stops using, because the
// server refuses the password.
type Refused struct{ text string }

// Error returns the server's words, as in "WRONGPASS invalid username-password pair".
func (r *Refused) Error() string { return r.text }

// RedisError marks the error as one from Redis. go-redis doesn't retry such an error, and
// doesn't treat it as a network error.
func (r *Refused) RedisError() {}

// enter returns nil if the caller may connect, and *Refused if not. After a refusal only
// one caller a second may connect.
func (g *gate) enter(addr string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.refusals[addr]
	if r == nil {
		return nil
	}
	now := time.Now()
	if now.Before(r.next) {
		return &Refused{r.text}
	}
	r.next = now.Add(refusalPause)
	return nil
}

// leave lets the next caller connect at once. It is for a caller that closed its
// connection without sending anything.
func (g *gate) leave(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.refusals[addr]; r != nil {
		r.next = time.Time{}
	}
}

// refused notes that the server refused the password.
func (g *gate) refused(addr, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusals[addr] = &refusal{text: text, next: time.Now().Add(refusalPause)}
}

// accepted lets all callers connect again.
func (g *gate) accepted(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.refusals, addr)
}

// watch wraps a connection so that the gate sees the server's reply to the password. If
// conn gives access to its socket, so does the result, because go-redis checks the socket
// before it reuses a connection.
func (g *gate) watch(conn net.Conn, addr string) net.Conn {
	w := &watchedConn{Conn: conn, gate: g, addr: addr}
	if socket, ok := conn.(syscall.Conn); ok {
		return &watchedSocket{watchedConn: w, socket: socket}
	}
	return w
}

// watchedConn is a connection that inspects the replies until the server accepts or
// refuses the password.
type watchedConn struct {
	net.Conn
	gate *gate
	addr string

	wrote    atomic.Bool
	answered atomic.Bool // the server accepted or refused the password
	refused  atomic.Pointer[Refused]
}

// Read implements net.Conn.
func (w *watchedConn) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)
	if n > 0 && !w.answered.Load() {
		w.look(into[:n])
	}
	return n, err
}

// look inspects one reply. It ignores an error about anything but the password, for
// example that the server doesn't know HELLO.
func (w *watchedConn) look(reply []byte) {
	switch {
	case reply[0] != '-':
		w.answered.Store(true)
		w.gate.accepted(w.addr)
	case bytes.HasPrefix(reply, []byte("-WRONGPASS")), bytes.HasPrefix(reply, []byte("-ERR invalid password")):
		line, _, _ := bytes.Cut(reply[1:], []byte("\r\n"))
		w.refused.Store(&Refused{string(line)})
		w.answered.Store(true)
		w.gate.refused(w.addr, string(line))
	}
}

// Write implements net.Conn. It fails after the server has refused the password, because
// go-redis would send the password once more.
func (w *watchedConn) Write(from []byte) (int, error) {
	if refused := w.refused.Load(); refused != nil {
		return 0, refused
	}
	w.wrote.Store(true)
	return w.Conn.Write(from)
}

// Close implements net.Conn. If nothing was sent, the next caller may connect at once.
func (w *watchedConn) Close() error {
	if !w.wrote.Load() {
		w.gate.leave(w.addr)
	}
	return w.Conn.Close()
}

// NetConn returns the wrapped connection.
func (w *watchedConn) NetConn() net.Conn { return w.Conn }

// watchedSocket is a watchedConn that also gives access to its socket.
type watchedSocket struct {
	*watchedConn
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (w *watchedSocket) SyscallConn() (syscall.RawConn, error) { return w.socket.SyscallConn() }
