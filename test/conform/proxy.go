package conform

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// proxy forwards commands between the program and Redis. It records the scripts, and
// injects the network's faults. It refuses commands that the protocol doesn't have, so
// that they don't reach the operator's Redis.
type proxy struct {
	options  *redis.UniversalOptions
	direct   redis.UniversalClient // without the proxy
	sandbox  sandbox
	scripts  map[string]script
	listener net.Listener
	all      sync.WaitGroup

	mu       sync.Mutex
	conns    map[*link]bool
	seen     []*sent
	faults   []*Fault
	kept     []*exchange
	problems []string
	over     bool // later errors come from closing.
	blamed   bool // a fault has delayed scripts or broken a connection.
	slow     bool // without a fault, a script was late or a client stopped waiting.
}

// link is one connection of the program, and the matching one to Redis.
type link struct {
	client, redis net.Conn
	in            *bufio.Reader // from the client
	out           *bufio.Reader // from Redis
	waiting       chan *exchange
	broken        chan struct{} // closed when no more replies reach the client
	awaited       atomic.Int64  // replies that the client has not received
}

// exchange is one command and the handling of its reply.
type exchange struct {
	raw    []byte
	sent   *sent  // nil unless it is a script.
	canned []byte // the proxy's own reply; the command isn't forwarded.
	lose   bool   // drop the reply and the connection.
	behind bool   // it is TIME; return a time in the past.
}

func newProxy(ctx context.Context, options *redis.UniversalOptions, direct redis.UniversalClient, at sandbox,
	scripts map[string]script) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &proxy{
		options: options, direct: direct, sandbox: at, scripts: scripts,
		listener: listener, conns: map[*link]bool{},
	}
	p.all.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections and waits for their goroutines.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.over = true
	for l := range p.conns {
		_, _ = l.client.Close(), l.redis.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := dial(ctx, p.options)
		if err != nil {
			p.problem("connect to Redis: %v", err)
			_ = client.Close()
			continue
		}
		l := &link{
			client: client, redis: upstream, in: bufio.NewReader(client), out: bufio.NewReader(upstream),
			waiting: make(chan *exchange, 1000), broken: make(chan struct{}),
		}
		p.mu.Lock()
		p.conns[l] = true
		p.mu.Unlock()
		p.all.Go(func() { p.up(ctx, l) })
		p.all.Go(func() { p.down(l) })
	}
}

// dial connects to Redis and authenticates there, so that the program needs no password
// and no TLS.
func dial(ctx context.Context, o *redis.UniversalOptions) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", o.Addrs[0])
	if err != nil {
		return nil, err
	}
	if o.TLSConfig != nil {
		secure := o.TLSConfig.Clone()
		if secure.ServerName == "" {
			secure.ServerName, _, _ = net.SplitHostPort(o.Addrs[0]) // dialling has shown that it can be split
		}
		conn = tls.Client(conn, secure)
	}
	var greeting [][]byte
	if o.Password != "" {
		who := []string{"AUTH", o.Username, o.Password}
		greeting = append(greeting, command(slices.DeleteFunc(who, func(s string) bool { return s == "" })...))
	}
	if o.DB != 0 {
		greeting = append(greeting, command("SELECT", strconv.Itoa(o.DB)))
	}
	in := bufio.NewReaderSize(conn, 16) // a small buffer, so that it reads no further than these short replies
	for _, g := range greeting {
		if _, err := conn.Write(g); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		reply, err := readValue(in)
		if err == nil && reply.kind == '-' {
			err = errors.New(reply.text)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// up forwards the program's commands to Redis, one after the other.
func (p *proxy) up(ctx context.Context, l *link) {
	defer close(l.waiting)
	for {
		args, raw, err := readCommand(l.in)
		if err != nil {
			if errors.Is(err, errProtocol) {
				p.problem("the program sent something that is %v", err)
			}
			if l.awaited.Load() > 0 {
				p.suspect()
			}
			return
		}
		e := &exchange{raw: raw}
		l.awaited.Add(1)
		kept, err := p.inspect(ctx, e, args)
		if err != nil {
			p.problem("%v", err)
			e.drop()
			return
		}
		if kept {
			_ = l.client.Close()
			return
		}
		select {
		case l.waiting <- e:
		case <-l.broken:
			e.drop()
			return
		}
		if e.canned != nil {
			continue
		}
		if _, err := l.redis.Write(e.raw); err != nil {
			return
		}
	}
}

// drop records that no reply will come.
func (e *exchange) drop() {
	if e.sent != nil && e.canned == nil {
		e.sent.reply("lost")
	}
}

// down forwards the replies, in the order of their commands.
func (p *proxy) down(l *link) {
	defer func() {
		_, _ = l.client.Close(), l.redis.Close()
		p.mu.Lock()
		delete(p.conns, l)
		p.mu.Unlock()
	}()
	for e := range l.waiting {
		reply, err := p.receive(l, e)
		if e.sent != nil && e.canned == nil {
			e.sent.reply(outcome(e, reply, err))
			if e.sent.answer == "late" {
				p.suspect()
			}
		}
		if err != nil || e.lose {
			break
		}
		_, _ = l.client.Write(reply.raw) // the program may be gone; the commands are executed anyway
		l.awaited.Add(-1)
	}
	close(l.broken)
	_ = l.client.Close()
	for e := range l.waiting {
		e.drop()
	}
}

// receive returns the next reply from Redis, or the proxy's own.
func (p *proxy) receive(l *link, e *exchange) (value, error) {
	if e.canned != nil {
		return value{raw: e.canned}, nil
	}
	reply, err := readValue(l.out)
	for err == nil && reply.kind == '>' { // a push message, which is not a reply
		_, _ = l.client.Write(reply.raw)
		reply, err = readValue(l.out)
	}
	if err == nil && e.behind && len(reply.items) == 2 {
		seconds, _ := strconv.ParseInt(reply.items[0].text, 10, 64)
		reply.raw = command(strconv.FormatInt(seconds-behindSeconds, 10), reply.items[1].text)
	}
	return reply, err
}

func outcome(e *exchange, reply value, err error) string {
	if err != nil || e.lose {
		return "lost"
	}
	return reply.status()
}

// inspect records a command and applies the fault that waits for it. It returns whether
// the command is kept and its connection must end.
func (p *proxy) inspect(ctx context.Context, e *exchange, args []string) (kept bool, err error) {
	name := p.admit(e, args)
	if e.canned != nil {
		return false, nil
	}
	if e.sent != nil {
		if err := p.note(ctx, e.sent); err != nil {
			return false, err
		}
	}
	f := p.fault(name)
	if f == nil {
		return false, nil
	}
	return p.inflict(ctx, f, e)
}

// inflict applies a fault to a command.
func (p *proxy) inflict(ctx context.Context, f *Fault, e *exchange) (kept bool, err error) {
	if f.meanwhile != nil {
		if err := f.meanwhile(ctx); err != nil {
			return false, err
		}
	}
	switch f.Then {
	case Lose:
		e.lose = true
	case Behind:
		e.behind = true
	case Late:
		return false, p.awaitClock(ctx, e.sent.notAfter())
	case Refuse:
		e.canned = []byte("-" + f.Error + "\r\n")
		if e.sent != nil {
			e.sent.reply(value{kind: '-', text: f.Error}.status())
		}
	case Keep:
		e.sent.reply("kept")
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kept = append(p.kept, e)
		return true, nil
	}
	return false, nil
}

// note adds a script to the ones seen, with Redis's time of its arrival.
func (p *proxy) note(ctx context.Context, s *sent) error {
	now, err := p.direct.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask Redis for the time: %w", err)
	}
	s.at = now.UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, s)
	return nil
}

// awaitClock waits until Redis's clock is past ms.
func (p *proxy) awaitClock(ctx context.Context, ms int64) error {
	for {
		now, err := p.direct.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("ask Redis for the time: %w", err)
		}
		if now.UnixMilli() > ms {
			return nil
		}
		timer := time.NewTimer(time.UnixMilli(ms + 1).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// deliver executes the script that was kept first, and returns its answer.
func (p *proxy) deliver(ctx context.Context) (string, error) {
	p.mu.Lock()
	if len(p.kept) == 0 {
		p.mu.Unlock()
		return "", errors.New("no script was kept back")
	}
	e := p.kept[0]
	p.kept = p.kept[1:]
	p.mu.Unlock()
	conn, err := dial(ctx, p.options)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write(e.raw); err != nil {
		return "", err
	}
	reply, err := readValue(bufio.NewReader(conn))
	return reply.status(), err
}

// arm adds a fault, which waits for its command.
func (p *proxy) arm(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
}

// fault removes and returns the fault for this command, or nil.
func (p *proxy) fault(name string) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.faults {
		if f.At != name {
			continue
		}
		if f.Nth--; f.Nth > 0 {
			continue
		}
		p.faults = slices.Delete(p.faults, i, i+1)
		p.blamed = p.blamed || f.Then != Carry && f.Then != Refuse
		return f
	}
	return nil
}

// suspect records that only slowness explains an event: without a fault, a script came
// late or a client stopped waiting for a reply.
func (p *proxy) suspect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = p.slow || !p.blamed && !p.over
}

// wasSlow reports whether the program or the machine was so slow that even a correct
// producer may have had to repeat a script.
func (p *proxy) wasSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// pending returns the faults that met no command.
func (p *proxy) pending() []*Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// since returns the scripts after the first n.
func (p *proxy) since(n int) []*sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen[n:])
}

func (p *proxy) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && !slices.Contains(p.problems, text) {
		p.problems = append(p.problems, text)
	}
}

// found returns the problems so far.
func (p *proxy) found() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// refuse answers a command with an error instead of Redis.
func (p *proxy) refuse(e *exchange, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.problem("%s", text)
	e.canned = []byte("-ERR conform: " + strings.Map(printable, text) + "\r\n")
}

func printable(r rune) rune {
	if r < ' ' {
		return '?'
	}
	return r
}
