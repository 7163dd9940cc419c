package scanner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// door is a proxy to a server that may stop answering: then it takes what a client sends
// and answers nothing.
type door struct {
	addr  string
	still atomic.Bool
	taken atomic.Int64 // bytes since then
}

func newDoor(t *testing.T, server string) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	d := &door{addr: listener.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []io.Closer
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, client, behind)
			mu.Unlock()
			all.Go(func() { d.carry(behind, client) })
			all.Go(func() { d.carry(client, behind) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return d
}

func (d *door) carry(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if d.still.Load() {
			d.taken.Add(int64(n))
		} else if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// standStill stops the answers. It returns when a client has sent something since.
func (d *door) standStill(t *testing.T) {
	t.Helper()
	d.still.Store(true)
	check.Until(t, "a client to send something", func() bool { return d.taken.Load() > 0 })
}

// fixed is a source with one topic that never changes.
type fixed struct{ doc config.Document }

const rawTopic = `{shards: 1, lease: 1s, tick: 100ms, exchange: orders, declare: {queue: orders.due, queue_type: classic}}`

func newFixed(t *testing.T) fixed {
	t.Helper()
	topic, err := config.ParseTopic("orders", []byte(rawTopic))
	check.OK(t, err)
	return fixed{config.Document{Name: "orders", Raw: []byte(rawTopic), Topic: topic, Index: 1}}
}

func (d fixed) Watch(ctx context.Context, apply func(config.Snapshot)) error {
	apply(config.Snapshot{Documents: map[string]config.Document{"orders": d.doc}, Index: 1})
	<-ctx.Done()
	return nil
}

func (d fixed) Read(_ context.Context, name string) (config.Document, bool, error) {
	return d.doc, name == "orders", nil
}

// fleet holds one test's servers and the queue of its topic.
type fleet struct {
	t              *testing.T
	redis, rabbit  string // their addresses
	prefix, broker string
	topic          *shard.Topic
	arrived        <-chan amqp.Delivery
	register       Register                                    // for scanners that are started from now on
	hook           func(context.Context, faults.Request) error // around their requests to Redis
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t}
	f.redis, f.prefix = servertest.Redis(t)
	if strings.Contains(f.redis, ",") {
		t.Skip("the door leads to one server")
	}
	f.broker = servertest.RabbitMQ(t)
	u, err := url.Parse(f.broker)
	check.OK(t, err)
	f.rabbit = u.Host
	store, err := shard.New(f.client(f.redis), f.prefix)
	check.OK(t, err)
	f.topic = store.Topic("orders")
	return f
}

// client returns a client whose calls end only with their contexts, or when it is closed.
func (f *fleet) client(addr string) redis.UniversalClient {
	options := servertest.RedisOptions(addr)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = check.Hang, time.Hour, time.Hour
	options.ContextTimeoutEnabled = true
	rdb := redis.NewUniversalClient(options)
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// start runs a scanner until stop is called or the test ends. ended is closed when the
// scanner has returned.
func (f *fleet) start(name, redisAddr, broker string, timeout time.Duration) (stop func(), ended <-chan struct{}) {
	f.t.Helper()
	settings := config.Defaults()
	settings.Redis.Prefix, settings.RabbitMQ.URLs = f.prefix, []string{broker}
	settings.Admin.Listen, settings.ShutdownTimeout = "127.0.0.1:0", timeout
	rdb := f.client(redisAddr)
	if f.hook != nil {
		faults.Around(rdb, f.hook)
	}
	s, err := New(Config{
		Settings: &settings, Source: newFixed(f.t), Store: storeOf(f.t, rdb, f.prefix), Instance: name,
		Register: f.register, Log: slog.New(slog.DiscardHandler),
	})
	check.OK(f.t, err)
	ctx, stop := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	f.t.Cleanup(func() { stop(); check.Closed(f.t, name+" to end", done) })
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			f.t.Log(name, err)
		}
	}()
	return stop, done
}

// schedule stores a task that is due.
func (f *fleet) schedule(id string) {
	f.t.Helper()
	check.Until(f.t, "the topic to be made", func() bool {
		_, err := f.topic.Placement(f.t.Context())
		return err == nil
	})
	fixture.Store(f.t, f.topic, fixture.Entries(task.Now(), []byte{0}, id)...)
}

// arrives waits until a task was delivered.
func (f *fleet) arrives(id string) {
	f.t.Helper()
	if f.arrived == nil {
		f.consume()
	}
	for check.Receive(f.t, "task "+id, f.arrived).MessageId != id {
	}
}

// consume declares the queue as a scanner would, and consumes from it.
func (f *fleet) consume() {
	f.t.Helper()
	channel := servertest.Channel(f.t, f.broker)
	_, err := channel.QueueDeclare("orders.due", true, false, false, false,
		amqp.Table{"x-queue-type": "classic"})
	check.OK(f.t, err)
	f.arrived, err = channel.Consume("orders.due", "", true, false, false, false, nil)
	check.OK(f.t, err)
}

const stopWithin = time.Second

// A scanner stops while Redis doesn't answer, and another one delivers the tasks.
func TestAScannerStopsWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	door := newDoor(t, f.redis)
	stop, ended := f.start("first", door.addr, f.broker, stopWithin)
	f.schedule("a")
	f.arrives("a")
	door.standStill(t)
	stop()
	check.Closed(t, "the scanner to end", ended)
	f.start("second", f.redis, f.broker, stopWithin)
	f.schedule("b")
	f.arrives("b")
}

// A scanner stops while RabbitMQ doesn't answer, and another one delivers the tasks.
func TestAScannerStopsWhileRabbitMQStandsStill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	door := newDoor(t, f.rabbit)
	stop, ended := f.start("first", f.redis, strings.Replace(f.broker, f.rabbit, door.addr, 1), stopWithin)
	f.schedule("a")
	f.arrives("a")
	door.still.Store(true)
	f.schedule("b")
	door.standStill(t)
	stop()
	check.Closed(t, "the scanner to end", ended)
	f.start("second", f.redis, f.broker, stopWithin)
	f.arrives("b")
}

// held delays a heartbeat until Redis has removed the member from the fleet.
type held struct {
	fleet string
	hold  atomic.Bool
	begun chan struct{} // a heartbeat is delayed
	left  chan struct{} // closed when Redis has removed the member
}

// around delays a request.
func (h *held) around(ctx context.Context, r faults.Request) error {
	cmd := r.Commands[0]
	args := fmt.Sprint(cmd.Args()...)
	switch {
	case cmd.Name() == "zrem" && strings.Contains(args, h.fleet):
		defer close(h.left)
	case strings.HasPrefix(cmd.Name(), "eval") && strings.Contains(args, h.fleet) && h.hold.Load():
		select {
		case h.begun <- struct{}{}:
		default:
		}
		select {
		case <-h.left:
			ctx = context.WithoutCancel(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.Send(ctx)
}

// A heartbeat that is on its way when a member leaves doesn't bring it back.
func TestAMemberThatLeftStaysAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := &held{fleet: f.prefix + ":fleet", begun: make(chan struct{}, 1), left: make(chan struct{})}
	f.hook = h.around
	stop, ended := f.start("first", f.redis, f.broker, check.Hang)
	fleet := func() []balance.Member {
		members, err := balance.Members(t.Context(), f.topic.Store())
		check.OK(t, err)
		return members
	}
	check.Until(t, "the member to be in the fleet", func() bool { return len(fleet()) == 1 })
	h.hold.Store(true)
	check.Receive(t, "a heartbeat", h.begun)
	stop()
	check.Closed(t, "the scanner to end", ended)
	if members := fleet(); len(members) > 0 {
		t.Errorf("%v is in the fleet", members)
	}
}
