package dial

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// again is how long a server that refused the password is left alone.
const again = time.Second

// gate bounds how often a password is sent to servers that refuse it: one connection a
// second to each. go-redis alone sends it twice for each connection, and makes one for
// each call.
type gate struct {
	mu       sync.Mutex
	refusals map[string]*refusal // by address
}

// refusal is a server's answer to a password.
type refusal struct {
	text string    // the server's words
	next time.Time // when another connection may try
}

// Refused is the error of a connection that is not made, or not used, because the server
// refuses the password.
type Refused struct{ text string }

// Error is the server's words, as in "WRONGPASS invalid username-password pair".
func (r *Refused) Error() string { return r.text }

// RedisError makes this an error of Redis, which go-redis neither tries again nor takes
// for a network's.
func (r *Refused) RedisError() {}

// enter returns *Refused if the server refused the password less than a second ago.
// Otherwise the caller may try, and no other for a second.
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
	r.next = now.Add(again)
	return nil
}

// leave lets the next caller try at once: this one sent nothing.
func (g *gate) leave(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.refusals[addr]; r != nil {
		r.next = time.Time{}
	}
}

// refused notes the server's answer to a password.
func (g *gate) refused(addr, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusals[addr] = &refusal{text: text, next: time.Now().Add(again)}
}

// accepted opens the gate for everybody.
func (g *gate) accepted(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.refusals, addr)
}

// watch returns the connection, from which the gate learns what the server says to the
// password. go-redis looks at a socket before it uses the connection again, so it must
// still find that of a connection without TLS.
func (g *gate) watch(conn net.Conn, addr string) net.Conn {
	w := &watched{Conn: conn, gate: g, addr: addr}
	if socket, ok := conn.(syscall.Conn); ok {
		return &watchedSocket{watched: w, socket: socket}
	}
	return w
}

// watched is a connection whose first answers are looked at.
type watched struct {
	net.Conn
	gate *gate
	addr string

	wrote    atomic.Bool
	answered atomic.Bool // the server took the password or refused it
	refused  atomic.Pointer[Refused]
}

// Read is the connection's.
func (w *watched) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)
	if n > 0 && !w.answered.Load() {
		w.look(into[:n])
	}
	return n, err
}

// look takes one reply. Errors that aren't about the password, such as that of a server
// that knows no HELLO, leave the question open.
func (w *watched) look(reply []byte) {
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

// Write is the connection's, until the server refused the password: go-redis would send
// it once more.
func (w *watched) Write(from []byte) (int, error) {
	if refused := w.refused.Load(); refused != nil {
		return 0, refused
	}
	w.wrote.Store(true)
	return w.Conn.Write(from)
}

// Close is the connection's.
func (w *watched) Close() error {
	if !w.wrote.Load() {
		w.gate.leave(w.addr)
	}
	return w.Conn.Close()
}

// NetConn is the connection underneath.
func (w *watched) NetConn() net.Conn { return w.Conn }

// watchedSocket is watched for a connection that is a socket itself.
type watchedSocket struct {
	*watched
	socket syscall.Conn
}

// SyscallConn is the connection's.
func (w *watchedSocket) SyscallConn() (syscall.RawConn, error) { return w.socket.SyscallConn() }
