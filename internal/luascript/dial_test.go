package luascript

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// front is a server that hands each connection, and its number from 1, to serve.
func front(t *testing.T, serve func(n int64, conn net.Conn)) (addr string, accepted *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	accepted = &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(accepted.Add(1), conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String(), accepted
}

// secureClient makes a client of addr as programs have one, with TLS.
func secureClient(t *testing.T, addr string, config *tls.Config) redis.UniversalClient {
	t.Helper()
	options := Dialing(&redis.UniversalOptions{
		Addrs: []string{addr}, TLSConfig: config, DialTimeout: check.Hang, ReadTimeout: check.Hang,
		WriteTimeout: check.Hang, DisableIdentity: true,
	})
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestASilentServerWithoutTLSIsFoundOut: Redis may take the TLS handshake for a command
// and wait for its end, while the client waits for the end of the handshake.
func TestASilentServerWithoutTLSIsFoundOut(t *testing.T) {
	t.Parallel()
	addr, accepted := front(t, func(_ int64, conn net.Conn) {
		defer conn.Close()
		reader := bufio.NewReader(conn)
		if first, err := reader.Peek(1); err != nil || first[0] != 'P' {
			_, _ = io.Copy(io.Discard, reader) // until the client goes away
			return
		}
		_, _ = conn.Write([]byte("-NOAUTH Authentication required.\r\n"))
	})
	err := secureClient(t, addr, &tls.Config{MinVersion: tls.VersionTLS12}).Ping(t.Context()).Err()
	if err == nil || !strings.Contains(err.Error(), "does not look like a TLS handshake") ||
		!strings.Contains(err.Error(), addr) {
		t.Errorf("got %v", err)
	}
	if n := accepted.Load(); n >= 10 {
		t.Errorf("%d connections were made to find out: each of five tries found it out anew", n)
	}
}

// TestASlowHandshakeIsWaitedFor: a server that is asked whether it speaks without TLS,
// and doesn't, has all the time that there is for its handshake.
func TestASlowHandshakeIsWaitedFor(t *testing.T) {
	t.Parallel()
	cert, roots := servertest.Certificate(t)
	asked := make(chan struct{})
	tell := sync.OnceFunc(func() { close(asked) })
	addr, _ := front(t, func(n int64, conn net.Conn) {
		defer conn.Close()
		if n > 1 {
			tell()
			return
		}
		<-asked
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
		reader := bufio.NewReader(secure)
		for {
			line, err := reader.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(strings.ToLower(line), "hello"):
				_, _ = secure.Write([]byte("-ERR unknown command\r\n"))
			case strings.HasPrefix(strings.ToLower(line), "ping"):
				_, _ = secure.Write([]byte("+PONG\r\n"))
			}
		}
	})
	if err := secureClient(t, addr, &tls.Config{MinVersion: tls.VersionTLS12,
		RootCAs: roots}).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
