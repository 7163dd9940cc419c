//go:build chaos

package chaos_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
)

const (
	queue = "orders.due"
	// patience limits every wait: a test that takes longer hangs.
	patience = 90 * time.Second
	// deadLetterRetry is how often RabbitMQ looks for rejected messages that a full queue didn't take.
	// It sends those again that are as old (dead_letter_worker_publisher_confirm_timeout).
	deadLetterRetry = 3 * time.Minute
	// leaseTime is the lease of claims: short, so that leases of dead scanners expire
	// soon, but long enough for a busy machine.
	leaseTime = 8 * time.Second
	// stopTime is the scanners' shutdown_timeout, and settleTime the part of it that they
	// have for settling.
	stopTime   = 10 * time.Second
	settleTime = 8 * time.Second
)

// options say how a harness differs from the default: three scanners, connected directly
// to their servers.
type options struct {
	scanners  int
	topic     fleet.Topic // changes to the topic orders
	more      map[string]fleet.Topic
	redisArgs []string
	cluster   bool // Redis is a cluster of three masters with a replica each
	// nodeTimeout is how long a cluster node may be silent before it is replaced.
	// Defaults to 2 s.
	nodeTimeout time.Duration
	sentinel    bool // Redis has two replicas and three sentinels.
	replicas    int  // min_replicas of scanners and producer.
	brokers     bool // RabbitMQ is a cluster of three nodes, and the queue a quorum queue.
	badRedis    bool // scanners reach Redis through a proxy.
	badRabbit   bool // scanners reach RabbitMQ through a proxy.
	consul      bool // topics come from Consul.
	setClock    bool // Redis's clock can be set; Redis is then a single server.
	exchange    bool // the test declares the exchange of orders, not the scanners.
	intake      bool // orders has an intake.
}

// idleTopics is how many topics more each fleet has, in which nothing is due.
var idleTopics = flag.Int("topics", 0, "how many idle topics each fleet has, too")

// harness is a running fleet on its own servers.
type harness struct {
	t        *testing.T
	dir      string
	config   string
	settings fleet.Settings

	redis    *servers.Redis
	cluster  *servers.RedisCluster // instead of redis
	watched  *servers.RedisSentinels
	rabbitmq *servers.RabbitMQ
	brokers  *servers.RabbitMQCluster // instead of rabbitmq
	consul   *servers.Consul
	// redisSteps is odd while a soak keeps Redis down.
	redisSteps atomic.Int64
	toRedis    *network // nil without badRedis
	toRabbit   *network

	direct   redis.UniversalOptions // options for Redis without a proxy
	client   redis.UniversalClient
	recorder fleet.Recorder
	scanners []*fleet.Scanner
	urls     []string // RabbitMQ's URLs without a proxy
	replicas int
	load     *load
	intake   *intakeClient // nil unless the load goes through an intake
	arrivals arrivals
	clock    redisClock
}

// newHarness starts the servers, the producer, the consumer and the scanners.
func newHarness(t *testing.T, o options) *harness {
	t.Helper()
	r := &harness{t: t, dir: t.TempDir(), replicas: o.replicas}
	if o.scanners == 0 {
		o.scanners = 3
	}
	r.servers(o)
	r.connect()
	r.write(o)
	if o.exchange {
		r.bind()
	}
	r.start(o.scanners)
	r.consume(queue)
	return r
}

// servers starts Redis and RabbitMQ. Redis syncs every write, so it keeps everything it
// acknowledged.
func (r *harness) servers(o options) {
	r.t.Helper()
	var env []string
	if o.setClock {
		env = r.clock.env(r.t, r.dir)
	}
	var g errgroup.Group
	ctx := r.t.Context()
	g.Go(func() (err error) {
		args := append([]string{"--appendfsync", "always", "--enable-debug-command", "yes"}, o.redisArgs...)
		dir := filepath.Join(r.dir, "redis")
		switch {
		case o.cluster:
			r.cluster, err = servers.StartRedisCluster(ctx, servers.RedisClusterConfig{Dir: dir, Masters: 3, Replicas: 1,
				Timeout: o.nodeTimeout, Args: args})
		case o.sentinel:
			r.watched, err = servers.StartRedisSentinels(ctx, servers.SentinelConfig{Dir: dir, Replicas: 2, Sentinels: 3,
				Args: args})
		default:
			r.redis, err = servers.StartRedis(ctx, servers.RedisConfig{Dir: dir, Args: args, Env: env})
		}
		return err
	})
	g.Go(func() (err error) {
		dir := filepath.Join(r.dir, "rabbitmq")
		if o.brokers {
			r.brokers, err = servers.StartRabbitMQCluster(ctx, servers.RabbitMQClusterConfig{Dir: dir, Nodes: 3})
		} else {
			r.rabbitmq, err = servers.StartRabbitMQ(ctx, servers.RabbitMQConfig{Dir: dir})
		}
		return err
	})
	if o.consul {
		g.Go(func() (err error) {
			r.consul, err = servers.StartConsul(ctx, servers.ConsulConfig{Dir: filepath.Join(r.dir, "consul")})
			return err
		})
	}
	err := g.Wait()
	r.t.Cleanup(r.killServers)
	r.t.Cleanup(r.explain)
	check.OK(r.t, err)
	r.settings.RedisPrefix = "duefleet"
	switch {
	case o.cluster:
		r.direct.Addrs = r.cluster.Addrs()
	case o.sentinel:
		r.direct.Addrs, r.direct.MasterName = r.watched.Addrs(), servers.MasterName
	default:
		r.direct.Addrs = []string{r.redis.Addr()}
	}
	r.settings.RedisAddr = strings.Join(r.direct.Addrs, ",")
	if o.brokers {
		r.urls = r.brokers.URLs("/")
	} else {
		r.urls = []string{r.rabbitmq.URL("/")}
	}
	r.settings.RabbitMQURL = strings.Join(r.urls, ",")
	r.settings.More = map[string]fleet.Topic{"redis": {"min_replicas": o.replicas, "master_name": r.direct.MasterName}}
	if o.badRedis {
		r.toRedis = newNetwork(r.t, r.redis.Addr())
		r.settings.RedisAddr = r.toRedis.addr()
	}
	if o.badRabbit {
		r.toRabbit = newNetwork(r.t, hostOf(r.t, r.settings.RabbitMQURL))
		r.settings.RabbitMQURL = strings.Replace(r.settings.RabbitMQURL, hostOf(r.t, r.settings.RabbitMQURL),
			r.toRabbit.addr(), 1)
	}
}

func (r *harness) killServers() {
	if r.redis != nil {
		_ = r.redis.Kill()
	}
	if r.cluster != nil {
		_ = r.cluster.Kill()
	}
	if r.watched != nil {
		_ = r.watched.Kill()
	}
	if r.brokers != nil {
		_ = r.brokers.Kill()
	}
	if r.rabbitmq != nil {
		_ = r.rabbitmq.Kill()
	}
	if r.consul != nil {
		_ = r.consul.Kill()
	}
}

// connect makes the producer, connected directly to Redis.
func (r *harness) connect() {
	r.t.Helper()
	r.client = redis.NewUniversalClient(&r.direct)
	r.t.Cleanup(func() { _ = r.client.Close() })
	client, err := producer.New(producer.Config{Redis: r.client, MinReplicas: r.replicas})
	check.OK(r.t, err)
	r.recorder = fleet.Recorder{Client: client, Ledger: fleet.NewLedger(fleet.LedgerConfig{Now: r.clock.now})}
}

// write writes the configuration file, or the topics to Consul.
func (r *harness) write(o options) {
	r.t.Helper()
	topics := map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders",
		fleet.Topic{"lease": leaseTime.String(), "window": inFlight / 2}.With(o.topic))}
	if o.exchange {
		delete(topics["orders"], "declare")
	}
	if o.intake {
		topics["orders"]["intake"] = map[string]any{"exchange": intakeExchange, "queue": intakeQueue, "headers": true}
	}
	if o.brokers {
		topics["orders"]["declare"].(map[string]any)["queue_type"] = "quorum" //nolint:forcetypeassert // made above
	}
	for i := range *idleTopics {
		name := fmt.Sprintf("idle-%04d", i)
		topics[name] = fleet.DeclaredTopic(name, nil)
	}
	for name, t := range o.more {
		topics[name] = fleet.DeclaredTopic(name, t)
	}
	r.config = filepath.Join(r.dir, "config.yaml")
	r.settings.ShutdownTimeout = stopTime.String()
	if r.consul == nil {
		r.settings.Topics = topics
	} else {
		r.settings.ConsulAddr, r.settings.ConsulPrefix = r.consul.Addr(), "duefleet"
	}
	check.OK(r.t, fleet.WriteConfig(r.config, r.settings.Document()))
	if r.consul == nil {
		return
	}
	file := filepath.Join(r.dir, "topics.yaml")
	check.OK(r.t, fleet.WriteConfig(file, map[string]any{"topics": topics}))
	if out := r.run(programs.Scanner, "topic", "apply", "-f", file, "--yes", "--no-wait"); out.Code != 0 {
		r.t.Fatalf("topic apply: %s", out.Stderr)
	}
}

// set writes a topic's settings to Consul without waiting for the scanners, which may be
// down.
func (r *harness) set(topic string, t fleet.Topic) {
	r.t.Helper()
	out := r.run(programs.Scanner, append([]string{"topic", "set", topic, "--no-wait"}, t.Pairs()...)...)
	if out.Code != 0 {
		r.t.Fatalf("topic set: %s", out.Stderr)
	}
}

// run runs a program with the harness's configuration.
func (r *harness) run(program string, args ...string) fleet.Output {
	r.t.Helper()
	return r.runWithin(patience, program, args...)
}

// runWithin is run for a program that has much to do.
func (r *harness) runWithin(limit time.Duration, program string, args ...string) fleet.Output {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), limit)
	defer cancel()
	out, err := fleet.Command{Path: program, Args: append(args, "--config", r.config)}.Run(ctx)
	check.OK(r.t, err)
	return out
}

// start adds n scanners.
func (r *harness) start(n int) {
	r.t.Helper()
	r.startBinary(programs.Scanner, n)
}

func (r *harness) startBinary(binary string, n int, env ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for range n {
		s, err := fleet.StartScanner(ctx, fleet.ScannerConfig{
			Binary: binary, Config: r.config, Dir: r.dir, Name: fmt.Sprintf("scanner-%d", len(r.scanners)+1), Env: env,
		})
		check.OK(r.t, err)
		r.scanners = append(r.scanners, s)
	}
}

// again starts a scanner that ended.
func (r *harness) again(s *fleet.Scanner) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	check.OK(r.t, s.Start(ctx))
}

// killEach kills running scanners with kill -9, one after the other, and starts each again after
// the pause.
func (r *harness) killEach(kills int, pause time.Duration) {
	r.t.Helper()
	for i := range kills {
		s := r.scanners[i%len(r.scanners)]
		check.OK(r.t, s.Kill())
		r.lasts(pause)
		r.again(s)
	}
}

// stop stops all scanners, which must finish within their timeout.
func (r *harness) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range r.scanners {
		if code, err := s.Stop(ctx); err != nil || code != 0 {
			r.t.Errorf("%s: code %d, %v", s.Log(), code, err)
		}
		log, err := os.ReadFile(s.Log())
		if err != nil {
			r.t.Error(err)
		}
		for _, bad := range []string{"panic:", "fatal error:"} {
			if strings.Contains(string(log), bad) {
				r.t.Errorf("%s says %s", s.Log(), bad)
			}
		}
	}
}

// explain logs the last lines of the scanners' logs if the test failed.
func (r *harness) explain() {
	for _, s := range r.scanners {
		if log, err := os.ReadFile(s.Log()); err == nil && r.t.Failed() {
			r.t.Logf("the end of %s:\n%s", filepath.Base(s.Log()), log[max(0, len(log)-4000):])
		}
	}
}

// consume enters all messages of a queue into the ledger.
func (r *harness) consume(queue string) {
	r.t.Helper()
	c, err := fleet.NewConsumer(fleet.ConsumerConfig{URL: strings.Join(r.urls, ","), Queue: queue, Handle: r.arrived})
	check.OK(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var g errgroup.Group
	g.Go(func() error { return c.Run(ctx) })
	r.t.Cleanup(func() { cancel(); _ = g.Wait() })
	select {
	case <-c.Ready():
	case <-time.After(patience):
		r.t.Fatalf("queue %s can't be consumed from", queue)
	}
}

func (r *harness) arrived(d fleet.Delivery) {
	if bytes.HasPrefix(d.Body, []byte(unnamedBody)) {
		r.arrivals.noteUnnamed(string(d.Body))
		return
	}
	here := d.At
	d.At = here.Add(time.Duration(r.clock.judged.Load()))
	if r.intake != nil {
		d = r.intake.asAsked(d)
	}
	r.recorder.Ledger.Delivered(d)
	r.arrivals.note(d, here)
}

// await fails the test if the condition doesn't come true in time.
func (r *harness) await(what string, condition func() bool) {
	r.t.Helper()
	r.within(patience, what, condition)
}

// within is await with its own limit.
func (r *harness) within(patience time.Duration, what string, condition func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	if err := fleet.Await(ctx, condition); err != nil {
		r.t.Fatalf("waited %s without success: %s", patience, what)
	}
}

// lasts waits for d while load and fault continue.
func (r *harness) lasts(d time.Duration) {
	r.t.Helper()
	select {
	case <-r.t.Context().Done():
		r.t.Fatal("interrupted")
	case <-time.After(d):
	}
}

func (r *harness) status() fleet.Status {
	r.t.Helper()
	s, err := fleet.ReadStatus(r.t.Context(), programs.Scanner, r.config)
	check.OK(r.t, err)
	return s
}

// ctl runs rabbitmqctl.
func (r *harness) ctl(args ...string) {
	r.t.Helper()
	if out, err := r.rabbitmq.Ctl(r.t.Context(), args...); err != nil {
		r.t.Fatalf("rabbitmqctl %v: %v: %s", args, err, out)
	}
}

// broker calls do with a channel of its own. It gives messages that amqp091-go can't read.
func (r *harness) broker(do func(ch *amqp.Channel) error) {
	r.t.Helper()
	conn, err := amqp.DialConfig(r.urls[0], amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		conn, err := amqp.DefaultDial(patience)(network, addr)
		if err != nil {
			return nil, err
		}
		return amqpframe.New(conn, nil), nil
	}})
	check.OK(r.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	check.OK(r.t, err)
}
