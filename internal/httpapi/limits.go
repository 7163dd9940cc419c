package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// limited is a listener with at most a number of open connections. Further connections
// wait in the kernel.
type limited struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newLimited(ln net.Listener, most int) *limited {
	return &limited{Listener: ln, free: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits until there is room for a connection, and for the connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close ends Accept, also while it waits for room.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn makes room when it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection and makes room for another one.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

const (
	// mostBatches is the number of batches at a time. Each has a memory budget of
	// ndjson.MemoryBudget.
	mostBatches = 4
	// mostOfOne is how many of them one client has, so that others have room.
	mostOfOne = 2
)

// slots are the batches that run. The zero value has none.
type slots struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by the client's name
}

// take begins a batch of a client that may have most batches, and returns the function that ends
// it. The error is the answer if there is no room.
func (s *slots) take(client string, most int) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[client] >= most && most < mostBatches:
		return nil, problem(http.StatusTooManyRequests, "too_many_batches",
			fmt.Sprintf("client %s: must have at most %d batches at a time", client, most)).later(1)
	case s.all >= mostBatches:
		return nil, problem(http.StatusServiceUnavailable, "busy", fmt.Sprintf("%d batches run", mostBatches)).later(1)
	case s.of == nil:
		s.of = map[string]int{}
	}
	s.all++
	s.of[client]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[client]--; s.of[client] == 0 {
			delete(s.of, client)
		}
	}, nil
}

// running returns the number of batches.
func (s *slots) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// timely reads the body of a batch, whose client must not be silent or slow for long.
type timely struct {
	ctx  context.Context // ends the reading
	body io.Reader
	ctl  *http.ResponseController
	// pause is how long to wait for bytes, and whole how long for a whole line.
	pause, whole time.Duration

	// began is when it began to wait for the rest of a line. Zero: it doesn't wait.
	began time.Time
	part  bool // it has read a part of a line
	late  bool // the client was too slow
}

// Read reads bytes that arrive in time, else it fails and the client is late. A line of blanks
// isn't a line: it would keep a batch for nothing.
func (t *timely) Read(p []byte) (int, error) {
	now := time.Now()
	if t.began.IsZero() {
		t.began = now
	}
	end := now.Add(t.pause)
	if whole := t.began.Add(t.whole); whole.Before(end) {
		end = whole
	}
	if err := errors.Join(t.ctl.SetReadDeadline(end), t.ctx.Err()); err != nil {
		return 0, err
	}
	n, err := t.body.Read(p)
	t.late = errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(end) // the end of ctx has such an error, too
	rest := p[:n]
	if last := bytes.LastIndexByte(rest, '\n'); last >= 0 {
		if t.part || len(bytes.TrimSpace(rest[:last])) > 0 {
			t.began, t.part = time.Time{}, false
		}
		rest = rest[last+1:]
	}
	t.part = t.part || len(bytes.TrimSpace(rest)) > 0
	return n, err
}

// timelyWriter writes to a client that must take the bytes in time.
type timelyWriter struct {
	out   io.Writer
	ctl   *http.ResponseController
	pause time.Duration
}

// Write writes bytes, each time within the pause.
func (t timelyWriter) Write(p []byte) (int, error) {
	if err := t.ctl.SetWriteDeadline(time.Now().Add(t.pause)); err != nil {
		return 0, err
	}
	return t.out.Write(p)
}

// bucket limits a rate, as a token bucket does: it fills at the rate, up to one second of
// it, and each request takes one.
type bucket struct {
	rate float64 // a second; 0: no limit

	mu    sync.Mutex
	level float64
	at    time.Time
}

func newBucket(rate float64) *bucket { return &bucket{rate: rate, level: max(rate, 1)} }

// wait waits until the rate permits one more request, or until ctx ends. If that would be after
// end, it takes none, and returns at once after how long there may be room.
func (b *bucket) wait(ctx context.Context, end time.Time) (after time.Duration) {
	for now := time.Now(); !b.take(now); now = time.Now() {
		if after = b.after(); now.Add(after).After(end) {
			return after
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0
		}
	}
	return 0
}

// after returns how long after a request that it refused it has room for the next one. It is above
// zero.
func (b *bucket) after() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(max(0, 1-b.level)/b.rate*float64(time.Second)) + 1
}

// take reports whether a request at now keeps the rate.
func (b *bucket) take(now time.Time) bool {
	if b.rate == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.level = min(b.level+now.Sub(b.at).Seconds()*b.rate, max(b.rate, 1))
	}
	b.at = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}
