package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/stack/stacktest"
)

// line is the way to Redis. It counts dials and notes when scripts are sent;
// while lossy, a connection breaks when the next reply to a script arrives.
type line struct {
	clock redis.UniversalClient // the way round it
	lossy atomic.Bool
	dials atomic.Int64

	mu    sync.Mutex
	sent  []sending
	broke string // where the reply was lost
}

// sending is that of a script: to which server, and at which Redis ms.
type sending struct {
	addr string
	at   int64
}

// copies are the times of those that were sent to where the reply was lost.
func (l *line) copies() (at []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sent {
		if s.addr == l.broke {
			at = append(at, s.at)
		}
	}
	return at
}

// lineTo is a topic of two shards at the end of a line.
func lineTo(t *testing.T, addr, prefix string) (*line, *corner) {
	t.Helper()
	l := &line{clock: redis.NewUniversalClient(stacktest.RedisOptions(addr))}
	t.Cleanup(func() { _ = l.clock.Close() })
	options := stacktest.RedisOptions(addr)
	options.Dialer, options.DialerRetries = l.dial, 1
	return l, cornerOn(t, options, prefix, 2)
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.dials.Add(1)
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &end{Conn: conn, line: l}, nil
}

func (l *line) note(ctx context.Context, addr string) error {
	now, err := l.clock.Time(ctx).Result()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, sending{addr, now.UnixMilli()})
	return nil
}

// end is this side's end of a line.
type end struct {
	net.Conn
	line   *line
	breaks bool
}

func (e *end) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("evalsha")) {
		if err := e.line.note(context.Background(), e.RemoteAddr().String()); err != nil {
			return 0, err
		}
		if e.breaks = e.line.lossy.CompareAndSwap(true, false); e.breaks {
			e.line.mu.Lock()
			e.line.broke = e.RemoteAddr().String()
			e.line.mu.Unlock()
		}
	}
	return e.Conn.Write(b)
}

// SyscallConn lets the client see that its other end is gone.
func (e *end) SyscallConn() (syscall.RawConn, error) {
	conn, ok := e.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}

func (e *end) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if err == nil && e.breaks {
		_ = e.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestACallOfUnknownFateIsRepeatedOnceItsFirstCopyCanDoNothing loses the reply
// of a script that was carried out.
func TestACallOfUnknownFateIsRepeatedOnceItsFirstCopyCanDoNothing(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(c *corner, notAfter int64){
		"put": func(c *corner, notAfter int64) {
			b := Put{Op: NewOp(), Absent: true, Entries: []Entry{entry("a", In(time.Hour))}}
			r := c.Put(c.ctx(), c.p, notAfter, []Put{b})[0]
			c.ok(r.Err)
			equal(c.t, "due", r.Due[0], c.read("a").Due.UnixMilli())
		},
		"puts to two shards": func(c *corner, notAfter int64) {
			batches := []Put{
				{Shard: 0, Op: NewOp(), Entries: []Entry{entry("a", In(time.Hour))}},
				{Shard: 1, Op: NewOp(), Entries: []Entry{entry("b", In(time.Hour))}},
			}
			r := c.Put(c.ctx(), c.p, notAfter, batches)
			c.ok(errors.Join(r[0].Err, r[1].Err))
			equal(c.t, "due", r[0].Due[0], c.read("a").Due.UnixMilli())
			equal(c.t, "due", r[1].Due[0], c.at1("b").Due.UnixMilli())
		},
		"reschedule": func(c *corner, notAfter int64) {
			due, err := c.Reschedule(c.ctx(), 0, c.p, notAfter, Move{Op: NewOp(), ID: "there", When: In(2 * time.Hour)})
			c.ok(err)
			equal(c.t, "due", due, c.read("there").Due.UnixMilli())
		},
		"delete": func(c *corner, notAfter int64) {
			_, err := c.Delete(c.ctx(), 0, c.p, notAfter, false, "there")
			c.ok(err)
			c.gone("there")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, prefix := stacktest.Redis(t)
			l, c := lineTo(t, addr, prefix)
			c.put(In(time.Hour), "there")
			c.delete("nothing")
			_, _ = c.Reschedule(c.ctx(), 0, c.p, c.notAfter(), Move{Op: NewOp(), ID: "nothing"}) // Redis knows the script
			notAfter := c.notAfter()
			l.sent = nil
			l.lossy.Store(true)
			call(c, notAfter)
			sent := l.copies()
			if len(sent) < 2 {
				t.Fatalf("sent %d times, and the first reply was lost", len(sent))
			}
			if sent[0] > notAfter || sent[1] <= notAfter {
				t.Errorf("sent at %d; the first copy could be carried out until %d", sent, notAfter)
			}
		})
	}
}

func TestAClockTakenForAheadDoesNotShortenTheWaitForACopy(t *testing.T) {
	t.Parallel()
	addr, prefix := stacktest.Redis(t)
	l, c := lineTo(t, addr, prefix)
	c.put(In(time.Hour), "before")
	c.clock.millis += 2000
	notAfter := c.notAfter()
	l.sent = nil
	l.lossy.Store(true)
	c.ok(c.Put(c.ctx(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", In(0))}}})[0].Err)
	if sent := l.copies(); len(sent) != 2 || sent[1] <= notAfter {
		t.Errorf("sent at %d; the first copy could be carried out until %d", sent, notAfter)
	}
}

func TestACallToARedisThatIsGoneIsRepeatedAFewTimes(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			server := ownServer(t)
			l, c := lineTo(t, server.Addr(), "own")
			c.put(In(0), "a")
			batches := make([]Put, shards)
			for i := range batches {
				batches[i] = Put{Shard: i, Op: NewOp(), Entries: []Entry{entry("a", In(0))}}
			}
			notAfter := c.notAfter()
			c.ok(server.Kill())
			l.dials.Store(0)
			for _, r := range c.Put(c.ctx(), c.p, notAfter, batches) {
				var op *net.OpError
				if !errors.As(r.Err, &op) || op.Op != "dial" {
					t.Errorf("put: got %v", r.Err)
				}
			}
			// The pool may dial once more than it is asked to.
			if n := l.dials.Load(); n < 1+repeats || n > 2*(1+repeats) {
				t.Errorf("dialed %d times", n)
			}
		})
	}
}

// met counts the answers to scripts that begin with a word.
type met struct {
	word string
	n    atomic.Int64
}

func (m *met) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *met) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *met) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && redis.HasErrorPrefix(err, m.word) {
			m.n.Add(1)
		}
		return err
	}
}

func TestACallOutlastsARestartOfRedis(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--appendfsync", "always")
	refused := make(chan struct{})
	var once sync.Once
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			once.Do(func() { close(refused) })
		}
		return conn, err
	}
	c := cornerOn(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Dialer: dial, DialerRetries: 1}, "own", 1)
	c.put(In(time.Hour), "before")
	c.ok(server.Kill())
	put := make(chan PutResult, 1)
	go func() { put <- c.tryPut(c.p, Put{Entries: []Entry{entry("a", In(time.Hour))}}) }()
	<-refused
	c.ok(server.Restart(c.ctx()))
	back := time.Now()
	r := <-put
	c.ok(r.Err)
	if late := time.Since(back); late > callLife-time.Second {
		t.Errorf("repeated %s after Redis was back; nothing had been sent, so it need not wait", late)
	}
	equal(t, "due", c.read("a").Due.UnixMilli(), r.Due[0])
	c.read("before")
}

func TestACallOutlastsARedisThatLoadsItsFile(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--appendfsync", "no", "--key-load-delay", "50")
	// Nothing is asked in front of the call on a new connection: Redis answers
	// but now and then while it loads.
	options := stacktest.RedisOptions(server.Addr())
	options.Protocol, options.DisableIdentity = 2, true
	c := cornerOn(t, options, "own", 1)
	c.put(In(time.Hour), "before")
	_, err := c.rdb.Pipelined(c.ctx(), func(p redis.Pipeliner) error {
		for i := range 6000 {
			p.Set(c.ctx(), fmt.Sprint("own:filler:", i), "", 0)
		}
		return nil
	})
	c.ok(err)
	c.ok(server.Stop(c.ctx()))
	loading := &met{word: "LOADING"}
	c.rdb.AddHook(loading)
	options.MaxRetries = -1
	side := redis.NewUniversalClient(options)
	defer side.Close()
	restarted := make(chan error, 1)
	go func() { restarted <- server.Restart(c.ctx()) }()
	eventually(t, "Redis loads its file", func() bool {
		return redis.HasErrorPrefix(side.Ping(c.ctx()).Err(), "LOADING")
	})
	due := c.put(In(time.Hour), "a")[0]
	c.ok(<-restarted)
	equal(t, "due", c.read("a").Due.UnixMilli(), due)
	c.read("before")
	if loading.n.Load() == 0 {
		t.Error("the call met a Redis that had loaded its file")
	}
}

func TestACallOfAClosedClientFailsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	notAfter := c.notAfter()
	c.ok(c.rdb.Close())
	began := time.Now()
	r := c.Put(c.ctx(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", In(0))}}})[0]
	if !errors.Is(r.Err, redis.ErrClosed) {
		t.Fatalf("put: got %v", r.Err)
	}
	if took := time.Since(began); took >= callLife {
		t.Errorf("it took %s", took)
	}
}
