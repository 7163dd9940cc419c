//go:build measure

package e2e_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	// wired is the number of scanners. They are killed in turn, twice each.
	wired = 3
	kills = 2 * wired
	// repeatsLease is long enough for a busy machine.
	repeatsLease = "15s"
	// repeatsWindow is the default of the topic's window.
	repeatsWindow = 2000
)

// TestMeasureRepeats: after a scanner is killed, only messages that the broker had not
// confirmed are repeated, with few exceptions. Confirmed tasks are settled at once.
func TestMeasureRepeats(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const rate = 3000
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"lease": repeatsLease})})
	wires := w.startWired(wired)
	w.consume("orders.due")
	loading, stop := context.WithCancel(t.Context())
	defer stop()
	var running errgroup.Group
	running.Go(func() error { return steady(loading, w, rate) })
	w.killInTurn(wires, func(i int) { w.awaitCount((2*i + 2) * rate) })
	stop()
	check.OK(t, running.Wait())
	w.checkKilled(wires)
}

// TestMeasureRepeatsOfABacklog: as TestMeasureRepeats, but with full windows, while the
// broker takes a backlog as fast as it can.
func TestMeasureRepeatsOfABacklog(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const tasks = 120_000
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"lease": repeatsLease})})
	w.pause(true)
	wires := w.startWired(wired)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", tasks, time.Now(), time.Second, 200)...)
	w.pause(false)
	w.killInTurn(wires, func(i int) { w.awaitCount((i + 1) * tasks / 10) })
	w.checkKilled(wires)
}

// killInTurn kills the scanners in turn and starts them again. Before each kill it calls
// ripe, which returns when the moment has come.
func (w *fixture) killInTurn(wires []*wire, ripe func(i int)) {
	w.t.Helper()
	for i := range kills {
		ripe(i)
		victim := i % wired
		check.OK(w.t, wires[victim].end(w.scanners[victim].Kill))
		check.OK(w.t, w.scanners[victim].Start(check.Context(w.t)))
	}
}

// checkKilled ends the run and compares the repeats with the messages that the broker had
// not confirmed at the kills. It allows a quarter more. It also allows the messages of
// ten milliseconds, which may be confirmed while their settle is still on its way to
// Redis.
func (w *fixture) checkKilled(wires []*wire) {
	w.t.Helper()
	r := w.finish()
	held := 0
	for _, wire := range wires {
		held += wire.held
	}
	w.t.Logf("%d kills: the broker had not confirmed %d messages, %d arrived again; %.0f tasks a second, lateness p50 "+
		"%s, p99 %s",
		kills, held, r.Duplicated, r.Rate(), r.Lateness.At(0.5), r.Lateness.At(0.99))
	if most := held + held/4 + kills*int(r.Rate()/wired/100); r.Duplicated > most {
		w.t.Errorf("%d repeats, want at most %d: the broker had not confirmed %d", r.Duplicated, most, held)
	}
	if most := kills * 2 * repeatsWindow; r.Duplicated > most {
		w.t.Errorf("%d repeats, want at most the %d of twice %d windows", r.Duplicated, most, kills)
	}
	w.checkRepeats()
	r.Duplicated = 0
	if err := r.Err(); err != nil {
		w.t.Error(err)
	}
}

// steady schedules rate tasks per second, due within a second and a half.
func steady(ctx context.Context, w *fixture, rate int) error {
	const beat = 50 * time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	n := rate * int(beat/time.Millisecond) / 1000
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		batch := orders("orders", fmt.Sprintf("s-%d", i), n, time.Now().Add(500*time.Millisecond), time.Second, 200)
		if err := w.recorder.Schedule(w.t.Context(), batch...); err != nil {
			return err
		}
	}
}

// startWired starts n scanners, each with its own wire to the broker.
func (w *fixture) startWired(n int) []*wire {
	w.t.Helper()
	wires := make([]*wire, n)
	for i := range wires {
		wires[i] = newWire(w.t, w.settings.RabbitMQURL)
		s, err := fleet.StartScanner(check.Context(w.t), fleet.ScannerConfig{
			Binary: programs.Scanner, Config: w.config, Dir: w.dir, Name: fmt.Sprintf("scanner-%d", i+1),
			Env: []string{"DUEFLEET_RABBITMQ_URLS=" + wires[i].url},
		})
		check.OK(w.t, err)
		w.scanners = append(w.scanners, s)
	}
	return wires
}

// wire is a proxy between a scanner and the broker. It knows which published messages are
// unconfirmed.
type wire struct {
	url    string // the broker's URL through the wire
	target string
	held   int // unconfirmed messages at the kills

	still   sync.RWMutex // held for writing while nothing may pass
	mu      sync.Mutex
	waiting map[net.Conn]map[uint16]*unanswered // by connection and channel
}

// unanswered holds the delivery tags of a channel that the broker has not answered. All
// tags below lowest are answered.
type unanswered struct {
	tags         map[uint64]struct{}
	lowest, last uint64
}

func newWire(t *testing.T, broker string) *wire {
	t.Helper()
	u, err := url.Parse(broker)
	check.OK(t, err)
	var cfg net.ListenConfig
	listener, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.OK(t, err)
	w := &wire{target: u.Host, waiting: map[net.Conn]map[uint16]*unanswered{}}
	u.Host = listener.Addr().String()
	w.url = u.String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.connect(t.Context(), client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return w
}

// end kills the scanner while no data passes, so that the count of unanswered messages is
// exact at that moment.
func (w *wire) end(kill func() error) error {
	w.still.Lock()
	defer w.still.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, channels := range w.waiting {
		for _, c := range channels {
			w.held += len(c.tags)
		}
	}
	return kill()
}

// connect proxies one connection until it or ctx ends.
func (w *wire) connect(ctx context.Context, client net.Conn) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", w.target)
	if err != nil {
		return
	}
	defer server.Close()
	w.mu.Lock()
	w.waiting[client] = map[uint16]*unanswered{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, client)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		w.pass(client, server, 0, func(channel uint16, method uint32, args []byte) {
			w.answered(client, channel, method,
				args)
		})
	})
	w.pass(server, client, len("AMQP\x00\x00\x09\x01"), func(channel uint16, method uint32,
		_ []byte) {
		w.published(client, channel, method)
	})
	_ = server.Close()
	back.Wait()
}

// Methods of AMQP 0-9-1, as class and method numbers.
const (
	basicPublish  = 60<<16 | 40
	basicAck      = 60<<16 | 80
	basicNack     = 60<<16 | 120
	confirmSelect = 85<<16 | 10
)

func (w *wire) published(conn net.Conn, channel uint16, method uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[conn][channel]
	switch {
	case method == confirmSelect:
		w.waiting[conn][channel] = &unanswered{tags: map[uint64]struct{}{}, lowest: 1}
	case method == basicPublish && c != nil:
		c.last++
		c.tags[c.last] = struct{}{}
	}
}

func (w *wire) answered(conn net.Conn, channel uint16, method uint32, args []byte) {
	if method != basicAck && method != basicNack {
		return
	}
	tag, multiple := binary.BigEndian.Uint64(args), args[8]&1 != 0
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[conn][channel]
	if c == nil {
		return
	}
	delete(c.tags, tag)
	if !multiple {
		return
	}
	for ; c.lowest <= tag; c.lowest++ {
		delete(c.tags, c.lowest)
	}
}

// pass forwards data until the connection ends, and calls method for every AMQP method in
// it. It does so before it forwards, so that a publish is recorded before its confirm.
// The first skip bytes are not frames.
func (w *wire) pass(to, from net.Conn, skip int, method func(channel uint16, method uint32, args []byte)) {
	var rest []byte
	forward := func(b []byte) error {
		w.still.RLock()
		defer w.still.RUnlock()
		rest = append(rest, b...)
		if len(rest) >= skip {
			rest, skip = methods(rest[skip:], method), 0
		}
		_, err := to.Write(b)
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && forward(buf[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// methods calls method for each method in complete frames, and returns the remaining
// bytes.
func methods(b []byte, method func(channel uint16, method uint32, args []byte)) (rest []byte) {
	const header, end, isMethod = 7, 1, 1
	for len(b) >= header {
		size := int(binary.BigEndian.Uint32(b[3:]))
		if len(b) < header+size+end {
			break
		}
		if payload := b[header : header+size]; b[0] == isMethod {
			method(binary.BigEndian.Uint16(b[1:]), binary.BigEndian.Uint32(payload), payload[4:])
		}
		b = b[header+size+end:]
	}
	return append([]byte(nil), b...)
}
