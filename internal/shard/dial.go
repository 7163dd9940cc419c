package shard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// dialTimeout bounds a connection, the handshake included, where the options say
	// nothing: go-redis's own default.
	dialTimeout = 5 * time.Second
	// tlsSilence is for how long a server may say nothing to a handshake before it is
	// asked whether it speaks TLS at all: Redis takes one for a command whose end is
	// still to come, and may wait for that for ever.
	tlsSilence = 500 * time.Millisecond
	// plainFor is for how long a server that was found to speak none is not asked
	// again: go-redis tries each connection five times in a row.
	plainFor = 2 * time.Second
)

// Dialing returns a copy of options whose connections find out soon that the server
// speaks no TLS at the port, and say so. It changes none that have no TLSConfig, or a
// Dialer of their own.
func Dialing(options *redis.UniversalOptions) *redis.UniversalOptions {
	own := *options
	if own.TLSConfig != nil && own.Dialer == nil {
		timeout := own.DialTimeout
		if timeout <= 0 {
			timeout = dialTimeout
		}
		own.Dialer = (&secureDialer{config: own.TLSConfig, timeout: timeout, plain: map[string]time.Time{}}).dial
	}
	return &own
}

// secureDialer makes connections with TLS.
type secureDialer struct {
	config  *tls.Config
	timeout time.Duration // for one connection

	mu    sync.Mutex
	plain map[string]time.Time // when an address was found to speak no TLS
}

func (d *secureDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.knownPlain(addr) {
		return nil, tlsError(addr, errNoTLS)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	raw, err := dialPlain(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn, err := d.handshake(ctx, raw, network, addr)
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

func (d *secureDialer) knownPlain(addr string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := d.plain[addr]
	return found && time.Since(at) < plainFor
}

func tlsError(addr string, err error) error { return fmt.Errorf("TLS with %s: %w", addr, err) }

// handshake returns when it is over, or the server was found to speak no TLS. Only one
// that has not said a byte is asked.
func (d *secureDialer) handshake(ctx context.Context, raw net.Conn, network, addr string) (net.Conn, error) {
	config := d.config
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
	heard := &overheard{Conn: raw, heard: make(chan struct{}, 1)}
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
		if speaksPlainly(ctx, network, addr) {
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

// errNoTLS is in the words of crypto/tls, which says so itself where the server
// answers a handshake with something else.
var errNoTLS = errors.New("tls: the server answers without TLS, which does not look like a TLS handshake")

// speaksPlainly reports whether a server answers a command that was sent without TLS;
// an error, such as that a password is missing, is an answer.
func speaksPlainly(ctx context.Context, network, addr string) bool {
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

// dialPlain keeps connections alive as go-redis does.
func dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return dialer.DialContext(ctx, network, addr)
}

// overheard is a connection that tells when its first bytes come.
type overheard struct {
	net.Conn
	heard chan struct{}
}

// Read is the connection's.
func (l *overheard) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	select {
	case l.heard <- struct{}{}:
	default:
	}
	return n, err
}
