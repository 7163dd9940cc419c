package producer

import (
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
)

// proxy is a bad network between a client and Redis.
type proxy struct {
	t        *testing.T
	addr     string
	redis    string
	answered chan string // Redis's answers to held requests

	mu    sync.Mutex
	links []*link
	lose  bool
	shut  chan struct{} // closed when later connections may carry anything; nil if they may
}

// clockAnswer matches Redis's answer to TIME, which a client may have requested on
// another connection.
var clockAnswer = regexp.MustCompile(`^\*2\r\n\$10\r\n\d{10}\r\n\$\d\r\n`)

// link is one connection through the proxy.
type link struct {
	client, redis net.Conn
	held          chan struct{} // closed when the client's data may pass; nil if it always may
	shut          chan struct{} // the same, for a client that waits
}

// finish ends the client's side; Redis answers what it was sent before.
func (l *link) finish() {
	if conn, ok := l.redis.(*net.TCPConn); ok {
		_ = conn.CloseWrite()
	}
}

func newProxy(t *testing.T, redis string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	p := &proxy{t: t, addr: listener.Addr().String(), redis: redis, answered: make(chan string, 100)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if l := p.link(client); l != nil {
				all.Go(func() { p.up(l) })
				all.Go(func() { p.down(l) })
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for _, l := range p.links {
			_, _ = l.client.Close(), l.redis.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *proxy) link(client net.Conn) *link {
	redis, err := net.Dial("tcp", p.redis)
	if err != nil {
		_ = client.Close()
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &link{client: client, redis: redis, shut: p.shut}
	p.links = append(p.links, l)
	return l
}

// up forwards data from the client. On a held link the client loses its connection at
// once, and the data is forwarded later.
func (p *proxy) up(l *link) {
	defer l.finish()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		held := l.held
		p.mu.Unlock()
		if held != nil {
			_ = l.client.Close()
			<-held
		}
		if l.shut != nil {
			<-l.shut
		}
		if _, err := l.redis.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// down forwards data from Redis.
func (p *proxy) down(l *link) {
	defer func() { _, _ = l.client.Close(), l.redis.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.redis.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		held, lose := l.held, p.lose
		p.lose = false
		p.mu.Unlock()
		switch {
		case lose:
			return
		case held != nil:
			if answer := string(buffer[:n]); !clockAnswer.MatchString(answer) {
				p.answered <- answer
			}
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hold keeps back data on the open connections; data on later connections passes. release
// forwards it and returns Redis's answer to the one script that was kept back.
func (p *proxy) hold() (release func() string) {
	held := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.held = held
	}
	once := sync.OnceFunc(func() { close(held) })
	p.t.Cleanup(once)
	return func() string {
		p.t.Helper()
		once()
		return check.Receive(p.t, "the answer to a script that was held up", p.answered)
	}
}

// shutOut keeps back data on later connections until the caller releases it; their
// clients wait.
func (p *proxy) shutOut() (letThrough func()) {
	shut := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	once := sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shut = nil
		close(shut)
	})
	p.t.Cleanup(once)
	return once
}

// loseReply breaks the connection at the next answer of Redis, so that the client doesn't
// get it.
func (p *proxy) loseReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = true
}

// lost reports whether loseReply has broken a connection.
func (p *proxy) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lose
}

// behind returns a producer behind a proxy. It knows the placement and Redis's clock, has
// one open connection, and Redis knows its scripts.
func (f *fleet) behind() (*proxy, *Client) {
	f.t.Helper()
	if strings.Contains(f.addr, ",") {
		f.t.Skip("the proxy is in front of one server")
	}
	p := newProxy(f.t, f.addr)
	c, err := New(Config{Prefix: f.prefix, Options: &redis.UniversalOptions{
		Addrs: []string{p.addr}, DialTimeout: check.Hang, ReadTimeout: check.Hang, PoolSize: 2,
	}})
	check.OK(f.t, err)
	f.t.Cleanup(func() { check.OK(f.t, c.Close()) })
	_, err = c.Schedule(f.t.Context(), request("nothing", In(time.Hour)))
	check.OK(f.t, err)
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "nothing"))
	return p, c
}
