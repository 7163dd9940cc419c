package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
)

const (
	scanners = 3
	topic    = "orders"
	queue    = "orders.due"
	dead     = "orders.dead"
	shards   = 4
)

// scannerPath and producerPath are where make demo puts the programs. The commands that
// -keep prints name them, too.
const (
	scannerPath  = "bin/scanner"
	producerPath = "bin/producer"
)

// demo holds the servers, the scanners and the consumer that run.
type demo struct {
	options
	dir, config string

	redis    *servers.Redis
	rabbitmq *servers.RabbitMQ
	consul   *servers.Consul
	scanners []*fleet.Scanner
	// console serves its pages at consoleAddr; nil without -keep.
	console     *fleet.Scanner
	consoleAddr string

	client   *redis.Client
	recorder fleet.Recorder
	consumer errgroup.Group
	silence  context.CancelFunc
	watch    watcher
}

// step prints a description, runs do, and prints how long it took.
func step(what string, do func() error) error {
	begin := time.Now()
	fmt.Printf("%-60s", what)
	if err := do(); err != nil {
		fmt.Println()
		return err
	}
	fmt.Printf(" %5.1f s\n", time.Since(begin).Seconds())
	return nil
}

// start brings up the servers, the scanners and a consumer.
func (d *demo) start(ctx context.Context) error {
	servers := "redis-server and rabbitmq-server"
	if d.options.consul {
		servers = "redis-server, rabbitmq-server and consul"
	}
	err := step("starting "+servers, func() error { return d.prepare(ctx) })
	if err != nil {
		return err
	}
	return step(fmt.Sprintf("starting %d scanners", scanners), func() error {
		if err := d.configure(ctx); err != nil {
			return err
		}
		if err := d.startScanners(ctx); err != nil {
			return err
		}
		return d.consume(ctx)
	})
}

// startConsole starts a console at a free port.
func (d *demo) startConsole(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if d.consoleAddr, err = fleet.FreeAddress(ctx); err != nil {
		return err
	}
	admin, err := fleet.FreeAddress(ctx)
	if err != nil {
		return err
	}
	d.console, err = fleet.StartScanner(ctx, fleet.ScannerConfig{
		Binary: scannerPath, Config: d.config, Dir: d.dir, Name: "console", Verb: "console", Admin: admin,
		Env: []string{"DUEFLEET_CONSOLE_LISTEN=" + d.consoleAddr, "DUEFLEET_CONSOLE_ADMIN_LISTEN=" + admin},
	})
	return err
}

// prepare starts the servers at the same time: RabbitMQ takes seconds.
func (d *demo) prepare(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() (err error) {
		d.redis, err = servers.StartRedis(ctx, servers.RedisConfig{Dir: filepath.Join(d.dir, "redis")})
		return err
	})
	g.Go(func() (err error) {
		d.rabbitmq, err = servers.StartRabbitMQ(ctx, servers.RabbitMQConfig{
			Dir: filepath.Join(d.dir, "rabbitmq"), Management: d.keep,
		})
		return err
	})
	if d.options.consul {
		g.Go(func() (err error) {
			d.consul, err = servers.StartConsul(ctx, servers.ConsulConfig{Dir: filepath.Join(d.dir, "consul")})
			return err
		})
	}
	return g.Wait()
}

// configure writes the configuration file. The topic goes into that file, or into Consul
// if there is one.
func (d *demo) configure(ctx context.Context) error {
	d.config = filepath.Join(d.dir, "config.yaml")
	settings := fleet.Settings{
		RedisAddr: d.redis.Addr(), RedisPrefix: "duefleet", RabbitMQURL: d.rabbitmq.URL("/"),
		Topics: map[string]fleet.Topic{topic: {
			"shards": shards, "exchange": topic, "routing_key": "order.due",
			"declare": map[string]any{"type": "direct", "queue": queue, "queue_type": "quorum", "dead_letter": dead},
		}},
	}
	if d.consul == nil {
		return fleet.WriteConfig(d.config, settings.Document())
	}
	settings.Topics = nil
	settings.ConsulAddr, settings.ConsulPrefix = d.consul.Addr(), "duefleet"
	if err := fleet.WriteConfig(d.config, settings.Document()); err != nil {
		return err
	}
	out, err := fleet.Command{Path: scannerPath, Args: []string{
		"topic", "set", topic, fmt.Sprintf("shards=%d", shards), "exchange=" + topic, "routing_key=order.due",
		"declare.type=direct", "declare.queue=" + queue, "declare.queue_type=quorum", "declare.dead_letter=" + dead,
		"--config", d.config,
	}}.Run(ctx)
	if err == nil && out.Code != 0 {
		err = errors.New(out.Stderr)
	}
	return err
}

func (d *demo) startScanners(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d.scanners = make([]*fleet.Scanner, scanners)
	var g errgroup.Group
	for i := range d.scanners {
		g.Go(func() (err error) {
			d.scanners[i], err = fleet.StartScanner(ctx, fleet.ScannerConfig{
				Binary: scannerPath, Config: d.config, Dir: d.dir, Name: fmt.Sprintf("scanner-%d", i+1),
			})
			return err
		})
	}
	return g.Wait()
}

// consume starts a consumer and returns once it receives from the queue.
func (d *demo) consume(ctx context.Context) error {
	d.client = redis.NewClient(&redis.Options{Addr: d.redis.Addr()})
	offset, err := fleet.ClockOffset(ctx, d.client)
	if err != nil {
		return err
	}
	client, err := producer.New(producer.Config{Redis: d.client})
	if err != nil {
		return err
	}
	d.recorder = fleet.Recorder{Client: client, Ledger: fleet.NewLedger(fleet.LedgerConfig{Offset: offset})}
	c, err := fleet.NewConsumer(fleet.ConsumerConfig{
		URL: d.rabbitmq.URL("/"), Queue: queue,
		Handle: func(m fleet.Delivery) {
			d.recorder.Ledger.Delivered(m)
			d.watch.arrived(m)
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	running, silence := context.WithCancel(context.WithoutCancel(ctx))
	d.silence = silence
	d.consumer.Go(func() error { return c.Run(running) })
	select {
	case <-c.Ready():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("consume from %s: %w", queue, ctx.Err())
	}
}

// verify runs `producer verify`, which tests the fleet from outside, and returns its report.
func (d *demo) verify(ctx context.Context) (report string, err error) {
	out, err := fleet.Command{Path: producerPath, Args: []string{
		"verify", topic, "--config", d.config, "--rate", "100", "--for", "3s", "--delay", "1s",
	}}.Run(ctx)
	if err == nil && out.Code != 0 {
		err = errors.New(out.Stdout + out.Stderr)
	}
	return out.Stdout, err
}

// play schedules the tasks and returns a report on their deliveries. A task that didn't
// arrive within a minute after the last due time counts as lost.
func (d *demo) play(ctx context.Context) (fleet.Report, error) {
	const ahead = 2 * time.Second
	start := time.Now().Add(ahead)
	err := step(fmt.Sprintf("scheduling %d tasks that are due over %s", d.tasks, d.over), func() error {
		return d.schedule(ctx, start)
	})
	if err != nil {
		return fleet.Report{}, err
	}
	limit := time.Until(start) + d.over + time.Minute
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	watchProgress(waiting, d.tasks, d.recorder.Ledger)
	if ctx.Err() != nil {
		return fleet.Report{}, ctx.Err()
	}
	return d.recorder.Ledger.Check(), nil
}

func (d *demo) schedule(ctx context.Context, start time.Time) error {
	const batch = 1000
	for from := 0; from < d.tasks; from += batch {
		orders := make([]fleet.Order, min(batch, d.tasks-from))
		for i := range orders {
			n := from + i
			orders[i] = fleet.Order{
				Request: producer.Request{
					Topic: topic, ID: fmt.Sprintf("order-%06d", n), ContentType: "application/json",
					Payload: fmt.Appendf(nil, `{"order":%d}`, n),
				},
				Due: start.Add(d.over * time.Duration(n) / time.Duration(d.tasks)),
			}
		}
		if err := d.recorder.Schedule(ctx, orders...); err != nil {
			return err
		}
	}
	return nil
}

// stop ends everything that start started. The scanners get SIGTERM, as in production;
// the servers are killed.
func (d *demo) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	errs := []error{fleet.StopAll(ctx, append(d.scanners, d.console))}
	if d.silence != nil {
		d.silence()
		errs = append(errs, d.consumer.Wait(), d.client.Close())
	}
	return errors.Join(append(errs, d.killServers())...)
}

func (d *demo) killServers() error {
	var errs []error
	if d.redis != nil {
		errs = append(errs, d.redis.Kill())
	}
	if d.rabbitmq != nil {
		errs = append(errs, d.rabbitmq.Kill())
	}
	if d.consul != nil {
		errs = append(errs, d.consul.Kill())
	}
	return errors.Join(errs...)
}
