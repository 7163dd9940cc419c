// Package redisdial makes connections to Redis for go-redis. It reads the TLS settings for
// each new connection, and quickly detects a server that doesn't use TLS. It connects at
// most once a second to a server that refuses the password. AddrMistake checks addresses.
package redisdial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout bounds a connection, the handshake included, if Config has no timeout.
	// It is go-redis's own default.
	dialTimeout = 5 * time.Second
	// tlsSilence is how long dial waits for the server's first byte in a handshake. Then
	// it checks whether the server uses TLS at all. Without TLS, Redis reads the
	// handshake as an unfinished command and may wait for the rest forever.
	tlsSilence = 500 * time.Millisecond
	// plainFor is how long dial remembers that a server doesn't use TLS. Meanwhile it
	// fails at once, because go-redis tries each connection five times in a row.
	plainFor = 2 * time.Second
)

// Config of a Dialer.
type Config struct {
	// TLS returns the TLS settings of the next connection; nil means no TLS. It is called
	// for every connection, so the settings may change. Defaults to no TLS.
	TLS func() *tls.Config
	// Timeout bounds a connection, the handshake included. Defaults to 5s.
	Timeout time.Duration
}

// Dialer makes connections to Redis. It is safe for concurrent use.
type Dialer struct {
	tls     func() *tls.Config
	timeout time.Duration // for one connection
	gate    gate

	mu    sync.Mutex
	plain map[string]time.Time // when an address was found to speak no TLS
}

// New returns a Dialer. It connects to nothing.
func New(cfg Config) *Dialer {
	d := &Dialer{tls: cfg.TLS, timeout: cfg.Timeout, gate: gate{refusals: map[string]*refusal{}},
		plain: map[string]time.Time{}}
	if d.tls == nil {
		d.tls = func() *tls.Config { return nil }
	}
	if d.timeout <= 0 {
		d.timeout = dialTimeout
	}
	return d
}

// Dial makes a connection; redis.Options takes it as its Dialer.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := d.gate.enter(addr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var conn net.Conn
	var err error
	if config := d.tls(); config != nil {
		conn, err = d.secure(ctx, config, network, addr)
	} else {
		conn, err = dialPlain(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	return d.gate.watch(conn, addr), nil
}

// secure makes a connection with TLS.
func (d *Dialer) secure(ctx context.Context, config *tls.Config, network, addr string) (net.Conn, error) {
	if d.knownPlain(addr) {
		return nil, tlsError(addr, errNoTLS)
	}
	raw, err := dialPlain(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn, err := handshake(ctx, config, raw, network, addr)
	if errors.Is(err, errNoTLS) {
		d.mu.Lock()
		d.plain[addr] = time.Now()
		d.mu.Unlock()
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) knownPlain(addr string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := d.plain[addr]
	return found && time.Since(at) < plainFor
}

func tlsError(addr string, err error) error { return fmt.Errorf("TLS with %s: %w", addr, err) }

// handshake performs the TLS handshake on raw. If the server sends nothing within
// tlsSilence, it sends a command without TLS over a second connection. If the server
// answers that, the error is errNoTLS.
func handshake(ctx context.Context, config *tls.Config, raw net.Conn, network, addr string) (net.Conn, error) {
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	heard := &notifyingConn{Conn: raw, heard: make(chan struct{}, 1)}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		timer := time.NewTimer(tlsSilence)
		defer timer.Stop()
		select {
		case <-heard.heard:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if answersWithoutTLS(ctx, network, addr) {
			stop(errNoTLS)
		}
	}()
	conn := tls.Client(heard, config)
	err := conn.HandshakeContext(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNoTLS) {
		err = errNoTLS
	}
	stop(nil)
	<-asked
	if err != nil {
		return nil, tlsError(addr, err)
	}
	return conn, nil
}

// errNoTLS has the words of crypto/tls for a server without TLS, because config.Advice
// looks for them.
var errNoTLS = errors.New("tls: the server answers without TLS, which does not look like a TLS handshake")

// answersWithoutTLS reports whether a server answers a command that was sent without TLS.
// An error counts as an answer, for example one about a missing password.
func answersWithoutTLS(ctx context.Context, network, addr string) bool {
	conn, err := dialPlain(ctx, network, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var first [1]byte
	n, _ := conn.Read(first[:])
	return n == 1 && (first[0] == '+' || first[0] == '-')
}

// dialPlain connects without TLS, with the keep-alive settings of go-redis.
func dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second,
		Interval: 5 * time.Second, Count: 3}}
	return dialer.DialContext(ctx, network, addr)
}

// notifyingConn is a connection that signals when it has received bytes.
type notifyingConn struct {
	net.Conn
	heard chan struct{}
}

// Read implements net.Conn.
func (c *notifyingConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	select {
	case c.heard <- struct{}{}:
	default:
	}
	return n, err
}
