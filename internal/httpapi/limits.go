package httpapi

import (
	"context"
	"net"
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

// bucket limits a rate, as a token bucket does: it fills at the rate, up to one second of
// it, and each request takes one.
type bucket struct {
	rate float64 // a second; 0: no limit

	mu    sync.Mutex
	level float64
	at    time.Time
}

func newBucket(rate float64) *bucket { return &bucket{rate: rate, level: max(rate, 1)} }

// wait waits until the rate permits one more request, or until ctx ends.
func (b *bucket) wait(ctx context.Context) {
	for !b.take(time.Now()) {
		timer := time.NewTimer(time.Duration(float64(time.Second) / b.rate))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
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
