package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
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

// sending is one send of a script: to which server, and at which Redis ms.
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
func lineTo(t *testing.T, addr, prefix string) (*line, *sandbox) {
	t.Helper()
	l := &line{clock: redis.NewUniversalClient(servertest.RedisOptions(addr))}
	t.Cleanup(func() { _ = l.clock.Close() })
	options := servertest.RedisOptions(addr)
	options.Dialer, options.DialerRetries = l.dial, 1
	return l, sandboxOn(t, options, prefix, 2)
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
	for name, begin := range map[string]func(c *sandbox) attempt{
		"put": func(c *sandbox) attempt {
			b := Put{Op: NewOp(), Mode: Absent, Entries: []Entry{entry("a", task.In(time.Hour))}}
			return func(notAfter int64) error {
				r := c.Put(c.t.Context(), c.p, notAfter, []Put{b})[0]
				if r.Err == nil {
					check.Equal(c.t, "due", r.Due[0], c.read("a").Due.UnixMilli())
				}
				return r.Err
			}
		},
		"puts to two shards": func(c *sandbox) attempt {
			batches := []Put{
				{Shard: 0, Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}},
				{Shard: 1, Op: NewOp(), Entries: []Entry{entry("b", task.In(time.Hour))}},
			}
			return func(notAfter int64) error {
				r := c.Put(c.t.Context(), c.p, notAfter, batches)
				if r[0].Err == nil && r[1].Err == nil {
					check.Equal(c.t, "due", r[0].Due[0], c.read("a").Due.UnixMilli())
					check.Equal(c.t, "due", r[1].Due[0], c.at1("b").Due.UnixMilli())
				}
				return errors.Join(r[0].Err, r[1].Err)
			}
		},
		"reschedule": func(c *sandbox) attempt {
			m := Move{Op: NewOp(), ID: "there", When: task.In(2 * time.Hour)}
			return func(notAfter int64) error {
				due, err := c.Shard(0).Reschedule(c.t.Context(), c.p, notAfter, m)
				if err == nil {
					check.Equal(c.t, "due", due, c.read("there").Due.UnixMilli())
				}
				return err
			}
		},
		"delete": func(c *sandbox) attempt {
			return func(notAfter int64) error {
				_, err := c.Delete(c.t.Context(), 0, c.p, notAfter, false, "there")
				if err == nil {
					c.gone("there")
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, prefix := servertest.Redis(t)
			l, c := lineTo(t, addr, prefix)
			c.put(task.In(time.Hour), "there")
			c.delete("nothing")
			// Redis knows the script
			_, _ = c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "nothing", When: task.Now()})
			sent, notAfter := l.loseFirst(c, begin(c), c.soonAfter)
			if len(sent) < 2 {
				t.Fatalf("sent %d times, and the first reply was lost", len(sent))
			}
			if sent[1] <= notAfter {
				t.Errorf("sent at %d; the first copy could be carried out until %d", sent, notAfter)
			}
		})
	}
}

// attempt is a call; made again it is the same one.
type attempt func(notAfter int64) error

// loseFirst makes a call whose first reply is lost. It returns when copies of the call were
// sent, and until when the first could be carried out. If Redis refused a copy as too late,
// it makes another call.
func (l *line) loseFirst(c *sandbox, do attempt, choose func() int64) (sent []int64, notAfter int64) {
	c.t.Helper()
	check.Until(c.t, "a call is sent in time", func() bool {
		c.scripts.ForgetClock()
		notAfter = choose()
		l.forget()
		l.lossy.Store(true)
		err := do(notAfter)
		sent = l.copies()
		if errors.Is(err, ErrLate) || len(sent) > 0 && sent[0] > notAfter {
			return false
		}
		check.OK(c.t, err)
		return true
	})
	return sent, notAfter
}

// forget what was sent.
func (l *line) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.broke = nil, ""
}

func TestAClockTakenForAheadDoesNotShortenTheWaitForACopy(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	l, c := lineTo(t, addr, prefix)
	c.put(task.In(time.Hour), "before")
	puts := []Put{{Op: NewOp(), Entries: []Entry{entry("a", task.Now())}}}
	put := func(notAfter int64) error { return c.Put(c.t.Context(), c.p, notAfter, puts)[0].Err }
	sent, notAfter := l.loseFirst(c, put, func() int64 {
		now, err := c.scripts.LatestNow(c.t.Context())
		check.OK(c.t, err)
		c.scripts.AssumeTime(now + 2000)
		return c.soonAfter()
	})
	if len(sent) != 2 || sent[1] <= notAfter {
		t.Errorf("sent at %d; the first copy could be carried out until %d", sent, notAfter)
	}
}

func TestACallToARedisThatIsGoneIsRepeatedAFewTimes(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			server := servertest.OwnRedis(t)
			l, c := lineTo(t, server.Addr(), "own")
			c.put(task.Now(), "a")
			batches := make([]Put, shards)
			for i := range batches {
				batches[i] = Put{Shard: i, Op: NewOp(), Entries: []Entry{entry("a", task.Now())}}
			}
			notAfter := c.soonAfter()
			check.OK(c.t, server.Kill())
			l.dials.Store(0)
			for _, r := range c.Put(c.t.Context(), c.p, notAfter, batches) {
				var op *net.OpError
				if !errors.As(r.Err, &op) || op.Op != "dial" {
					t.Errorf("put: got %v", r.Err)
				}
			}
			// The pool may dial once more than it is asked to.
			if n := l.dials.Load(); n < 1+luascript.Repeats || n > 2*(1+luascript.Repeats) {
				t.Errorf("dialed %d times", n)
			}
		})
	}
}

// refusing makes connections, except the first left ones, which it refuses.
type refusing struct{ left atomic.Int64 }

func (r *refusing) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// TestACallOutlastsARestartOfRedis: a call that reaches no server is made again.
// Nothing was sent, so it doesn't wait until a copy would be over: it asks no server for
// the time.
func TestACallOutlastsARestartOfRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendfsync", "always")
	down := &refusing{}
	c := sandboxOn(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Dialer: down.dial, DialerRetries: 1}, "own",
		1)
	c.put(task.In(time.Hour), "before")
	sent := faults.Count(c.rdb)
	side := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer side.Close()
	b := Put{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}
	var r PutResult
	check.Until(t, "a call reaches Redis in time", func() bool {
		check.OK(c.t, server.Kill())
		check.OK(c.t, server.Restart(c.t.Context()))
		now, err := side.Time(c.t.Context()).Result()
		check.OK(c.t, err)
		c.scripts.AssumeTime(now.UnixMilli())
		notAfter := c.soonAfter()
		sent.Forget()
		down.left.Store(3)
		r = c.Put(c.t.Context(), c.p, notAfter, []Put{b})[0]
		return !errors.Is(r.Err, ErrLate)
	})
	check.OK(c.t, r.Err)
	if n := sent.Of("evalsha"); n < 3 || n > 1+luascript.Repeats {
		t.Errorf("tried %d times, and 3 connections were refused", n)
	}
	check.Equal(t, "times that the time was asked for", sent.Of("time"), 0)
	check.Equal(t, "due", c.read("a").Due.UnixMilli(), r.Due[0])
	c.read("before")
}

// loading is a connection on which a Redis that loads its file answers some
// scripts.
type loading struct {
	net.Conn
	left   *atomic.Int64 // scripts that are to be answered so, on all connections
	answer []byte
}

func (l *loading) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("evalsha")) && l.left.Add(-1) >= 0 {
		l.answer = []byte("-LOADING Redis is loading the dataset in memory\r\n")
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l *loading) Read(b []byte) (int, error) {
	if len(l.answer) > 0 {
		n := copy(b, l.answer)
		l.answer = l.answer[n:]
		return n, nil
	}
	return l.Conn.Read(b)
}

// SyscallConn lets the client see that its other end is gone.
func (l *loading) SyscallConn() (syscall.RawConn, error) {
	conn, ok := l.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}

func TestACallOutlastsARedisThatLoadsItsFile(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	options := servertest.RedisOptions(servertest.OwnRedis(t).Addr())
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &loading{Conn: conn, left: &left}, err
	}
	c := sandboxOn(t, options, "own", 1)
	c.put(task.In(time.Hour), "before")
	sent := faults.Count(c.rdb)
	b := Put{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}
	var r PutResult
	check.Until(t, "a call reaches Redis in time", func() bool {
		c.scripts.ForgetClock()
		notAfter := c.soonAfter()
		sent.Forget()
		left.Store(2)
		r = c.Put(c.t.Context(), c.p, notAfter, []Put{b})[0]
		return !errors.Is(r.Err, ErrLate)
	})
	check.OK(c.t, r.Err)
	check.Equal(t, "times it was sent", sent.Of("evalsha"), 3)
	check.Equal(t, "due", c.read("a").Due.UnixMilli(), r.Due[0])
	c.read("before")
}

// TestACallOfAClosedClientFailsAtOnce: it is neither made again nor waited for.
func TestACallOfAClosedClientFailsAtOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	notAfter := c.soonAfter()
	sent := faults.Count(c.rdb)
	check.OK(c.t, c.rdb.Close())
	r := c.Put(c.t.Context(), c.p, notAfter, []Put{{Op: NewOp(), Entries: []Entry{entry("a", task.Now())}}})[0]
	if !errors.Is(r.Err, redis.ErrClosed) {
		t.Fatalf("put: got %v", r.Err)
	}
	check.Equal(t, "times it was tried", sent.Of("evalsha"), 1)
	check.Equal(t, "times that the time was asked for", sent.Of("time"), 0)
}

// TestACallOutlastsAClusterThatDisagrees: while two nodes send a slot from one to the
// other, longer than the client follows. Nothing is stored there, so that the nodes can be
// told so.
func TestACallOutlastsAClusterThatDisagrees(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	c := sandboxOn(t, servertest.RedisOptions(strings.Join(cluster.Addrs(), ",")), "own", 1)
	slot, err := c.rdb.ClusterKeySlot(c.t.Context(), c.Shard(0).due()).Result()
	check.OK(c.t, err)
	owner, err := cluster.Master(c.t.Context(), c.Shard(0).due())
	check.OK(c.t, err)
	other := cluster.Nodes[0]
	if other == owner {
		other = cluster.Nodes[1]
	}
	asks := redis.NewClient(&redis.Options{Addr: owner.Addr()})
	defer asks.Close()
	assign := func(to *servers.Redis) {
		node := redis.NewClient(&redis.Options{Addr: to.Addr()})
		defer node.Close()
		id, err := node.Do(c.t.Context(), "CLUSTER", "MYID").Text()
		check.OK(c.t, err)
		check.OK(c.t, asks.Do(c.t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	}
	assign(other) // which goes on to name the owner
	tries := faults.Count(c.rdb)
	answered := make(chan error, 1)
	go func() { answered <- c.tryPut(c.p, Put{Entries: []Entry{entry("a", task.In(time.Hour))}}).Err }()
	check.Until(t, "more tries than a call without a redirection makes", func() bool {
		if len(answered) > 0 {
			t.Fatalf("it gave up: %v", <-answered)
		}
		return tries.Of("evalsha", "eval") > 1+luascript.Repeats
	})
	assign(owner)
	check.OK(c.t, <-answered)
	c.read("a")
}
