package forward_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) {
	os.Exit(servertest.Leaks(m))
}

// unhurried is the ConfirmTimeout for messages that must be confirmed, however long it
// takes.
const unhurried = time.Hour

// results collects what a publisher reports and notices a second result.
type results struct {
	t  testing.TB
	mu sync.Mutex
	of map[*forward.Message]forward.Result
}

func newResults(t testing.TB) *results {
	return &results{t: t, of: make(map[*forward.Message]forward.Result)}
}

func (r *results) take(batch []forward.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range batch {
		if earlier, ok := r.of[one.Message]; ok {
			r.t.Errorf("two results for %q: %v (%s), then %v (%s)", one.Message.Task.ID, earlier.Outcome, earlier.Reason,
				one.Outcome, one.Reason)
		}
		r.of[one.Message] = one
	}
}

func (r *results) get(m *forward.Message) (forward.Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.of[m]
	return one, ok
}

func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.of)
}

// all waits for the results of all messages, in their order.
func (r *results) all(messages ...*forward.Message) []forward.Result {
	r.t.Helper()
	found := make([]forward.Result, len(messages))
	for i, m := range messages {
		wait.Progress(r.t, fmt.Sprintf("a result for %q", m.Task.ID), r.count, func() bool {
			one, ok := r.get(m)
			found[i] = one
			return ok
		})
	}
	return found
}

// outcomes counts the results by outcome.
func outcomes(found []forward.Result) map[forward.Outcome]int {
	n := make(map[forward.Outcome]int)
	for _, one := range found {
		n[one.Outcome]++
	}
	return n
}

// connect runs a connection until the end of the test, with limits that a slow machine
// doesn't reach.
func connect(t testing.TB, cfg forward.Config) *forward.Connection {
	t.Helper()
	return connectAsIs(t, forward.Target(cfg))
}

// connectAsIs runs a connection with the same limits as in a scanner.
func connectAsIs(t testing.TB, cfg forward.Config) *forward.Connection {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	c, err := forward.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wait.Background(t, "Run of a connection", c.Run)
	return c
}

// publisher runs a publisher until the end of the test. Unless the route sets a
// ConfirmTimeout, it waits for confirms however long they take.
func publisher(t testing.TB, c *forward.Connection, topic string, r forward.Route) (*forward.Publisher, *results) {
	t.Helper()
	if r.ConfirmTimeout == 0 {
		r.ConfirmTimeout = unhurried
	}
	got := newResults(t)
	p := c.NewPublisher(topic, r, got.take)
	wait.Background(t, "Run of a publisher", p.Run)
	return p, got
}

func ready(t testing.TB, p *forward.Publisher) {
	t.Helper()
	if err := p.WaitReady(wait.Context(t)); err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, p *forward.Publisher, batch ...*forward.Message) {
	t.Helper()
	if err := p.Publish(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// messages returns n messages with distinct IDs.
func messages(topic, prefix string, n int) []*forward.Message {
	batch := make([]*forward.Message, n)
	for i := range batch {
		batch[i] = &forward.Message{Task: task.Task{
			Topic: topic, ID: fmt.Sprintf("%s-%d", prefix, i), Attempt: 1,
			Due: time.Now(), Scheduled: time.Now(), Payload: []byte("payload"),
		}}
	}
	return batch
}

// declareExchange makes a durable exchange.
func declareExchange(t testing.TB, ch *amqp.Channel, name, kind string) {
	t.Helper()
	if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

// declareQueue makes a durable queue and binds it.
func declareQueue(t testing.TB, ch *amqp.Channel, queue, exchange, key string, args, match amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(queue, key, exchange, false, match); err != nil {
		t.Fatal(err)
	}
}

// stored takes all messages out of a queue, up to its own end mark, and counts them by
// message-id.
func stored(t testing.TB, ch *amqp.Channel, queue string) map[string]int {
	t.Helper()
	const end = "the end of a test's messages"
	if err := ch.Publish("", queue, true, false, amqp.Publishing{MessageId: end}); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]int)
	for {
		m := wait.Receive(t, "the end of queue "+queue, deliveries)
		if m.MessageId != end {
			ids[m.MessageId]++
			continue
		}
		if err := ch.Cancel(queue, false); err != nil {
			t.Fatal(err)
		}
		return ids
	}
}

// testWriter shows the log of a test that failed.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// proxy connects a publisher with the broker and simulates a bad network.
type proxy struct {
	listener net.Listener
	target   string
	dials    atomic.Int32
	channels atomic.Int64 // opened
	answers  atomic.Int64 // acks and nacks forwarded
	methods  atomic.Int64 // methods that the broker sent; held ones count

	mu      sync.Mutex
	frozen  chan struct{}   // not nil while nothing is forwarded; closed when that ends.
	held    chan struct{}   // the same for what the broker sends.
	muted   map[uint16]bool // channels whose frames from the broker are dropped.
	highest uint16          // the highest channel with a frame from the broker.
	last    uint16          // later channels are muted; 0: none are.
	conns   map[net.Conn]struct{}
	running sync.WaitGroup
}

// newProxy returns a proxy to the broker of a URL, and the URL through it.
func newProxy(t testing.TB, rawURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host, conns: make(map[net.Conn]struct{})}
	u.Host = listener.Addr().String()
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.thaw()
		p.release()
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
		p.waitThaw()
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
		p.waitThaw()
		p.waitRelease()
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

func (p *proxy) waitThaw() {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (p *proxy) waitRelease() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// hold delays what the broker sends until release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
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

// freeze keeps all connections open and forwards nothing.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
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
