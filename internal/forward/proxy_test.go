package forward_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// proxy connects a publisher with the broker and simulates a bad network.
type proxy struct {
	listener net.Listener
	target   string
	dials    atomic.Int32
	channels atomic.Int64 // opened
	answers  atomic.Int64 // acks and nacks forwarded
	methods  atomic.Int64 // methods that the broker sent; held ones count

	frozen gate // for everything; connections stay open
	held   gate // for what the broker sends

	mu      sync.Mutex
	muted   map[uint16]bool // channels whose frames from the broker are dropped.
	highest uint16          // the highest channel with a frame from the broker.
	last    uint16          // later channels are muted; 0: none are.
	conns   map[net.Conn]struct{}
	running sync.WaitGroup
}

// gate holds what comes to it between shut and open.
type gate struct {
	mu   sync.Mutex
	wait chan struct{} // nil while it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wait = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wait != nil {
		close(g.wait)
		g.wait = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	wait := g.wait
	g.mu.Unlock()
	if wait != nil {
		<-wait
	}
}

// newProxy returns a proxy to the broker of a URL, and the URL through it.
func newProxy(t testing.TB, rawURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	check.OK(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	p := &proxy{listener: listener, target: u.Host, conns: make(map[net.Conn]struct{})}
	u.Host = listener.Addr().String()
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.frozen.open()
		p.held.open()
		p.cut()
		p.running.Wait()
	})
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.dials.Add(1)
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.running.Go(func() { p.copyFrames(client, server) })
		p.running.Go(func() { p.copy(server, client) })
	}
}

// copy forwards what the client sends.
func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.frozen.pass()
		p.channels.Add(int64(bytes.Count(buf[:n], []byte("\x00\x14\x00\x0a\x00\xce")))) // channel.open, and the frame's end
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// copyFrames forwards what the broker sends, frame by frame.
func (p *proxy) copyFrames(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		frame := make([]byte, 7)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(frame[3:])+1)
		if _, err := io.ReadFull(in, rest); err != nil {
			return
		}
		if frame[0] == 1 {
			p.methods.Add(1)
		}
		p.frozen.pass()
		p.held.pass()
		channel := binary.BigEndian.Uint16(frame[1:])
		p.mu.Lock()
		p.highest = max(p.highest, channel)
		muted := p.muted[channel] || p.last > 0 && channel > p.last
		p.mu.Unlock()
		if muted {
			continue
		}
		if _, err := to.Write(append(frame, rest...)); err != nil {
			return
		}
		if isAnswer(frame[0], rest) {
			p.answers.Add(1)
		}
	}
}

// isAnswer reports whether a frame is a basic.ack or a basic.nack.
func isAnswer(kind byte, payload []byte) bool {
	return kind == 1 && (bytes.HasPrefix(payload, []byte("\x00\x3c\x00\x50")) ||
		bytes.HasPrefix(payload, []byte("\x00\x3c\x00\x78")))
}

// muteLater makes the broker silent on all channels that are opened from now on.
func (p *proxy) muteLater() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = p.highest
}

// muteNewest makes the broker silent on the channel that was opened last.
func (p *proxy) muteNewest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = map[uint16]bool{p.highest: true}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
