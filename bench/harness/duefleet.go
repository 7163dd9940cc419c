package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	topicName = "orders"
	prefix    = "duefleet"
	// startLimit limits the start of a fleet.
	startLimit = time.Minute
	// mostInFile is the number of topics that are in a file. More are in Consul, because a
	// file may have 512 KiB.
	mostInFile = 1000
	// stopLimit limits the graceful stop of the scanners.
	stopLimit = 30 * time.Second
)

// FleetConfig configures a Fleet.
type FleetConfig struct {
	// Scanners defaults to 3, Shards (M) to 4, QueueType to classic.
	Scanners, Shards int
	QueueType        string
	// Topics is the number of topics, which are all alike. Tasks go to them in turn.
	// Defaults to 1.
	Topics int
	// Topic holds more keys for their documents.
	Topic fleet.Topic
}

func (c FleetConfig) withDefaults() FleetConfig {
	if c.Scanners == 0 {
		c.Scanners = 3
	}
	if c.Shards == 0 {
		c.Shards = 4
	}
	if c.QueueType == "" {
		c.QueueType = Classic
	}
	if c.Topics == 0 {
		c.Topics = 1
	}
	return c
}

// Fleet is a running fleet: scanners as processes, and a client.
type Fleet struct {
	cfg      FleetConfig
	run      *Run
	config   string
	scanners []*fleet.Scanner
	// Client is a client of the public library.
	Client *producer.Client
	// Queue is the queue for due tasks.
	Queue string
}

// StartFleet starts a fleet and waits until all scanners are ready. The run's Close stops
// it.
func (r *Run) StartFleet(ctx context.Context, cfg FleetConfig) (*Fleet, error) {
	cfg = cfg.withDefaults()
	queue, err := r.Queue("due-"+cfg.QueueType, cfg.QueueType)
	if err != nil {
		return nil, err
	}
	client, err := producer.New(producer.Config{Redis: r.Redis.Client, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, run: r, config: filepath.Join(r.Dir, queue+".yaml"), Client: client, Queue: queue}
	topic := fleet.Topic{"shards": cfg.Shards, "exchange": queue, "routing_key": queue}.With(cfg.Topic)
	topics := map[string]fleet.Topic{}
	for n := range cfg.Topics {
		topics[f.topic(n)] = topic
	}
	settings := fleet.Settings{RedisAddr: r.Redis.Addr(), RedisPrefix: prefix, RabbitMQURL: r.URL(), Topics: topics}
	if cfg.Topics > mostInFile {
		settings.Topics, settings.ConsulPrefix = nil, prefix
		if settings.ConsulAddr, err = r.inConsul(ctx, topics); err != nil {
			return nil, err
		}
	}
	if err := fleet.WriteConfig(f.config, settings.Document()); err != nil {
		return nil, err
	}
	r.Defer(f.Stop)
	return f, f.Start(ctx)
}

// Start starts the scanners of a fleet that was stopped, and waits until they are ready.
func (f *Fleet) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	f.scanners = make([]*fleet.Scanner, f.cfg.Scanners)
	var g errgroup.Group
	for i := range f.scanners {
		g.Go(func() (err error) {
			f.scanners[i], err = fleet.StartScanner(ctx, fleet.ScannerConfig{
				Binary: filepath.Join(f.run.Root(), "bin", "scanner"), Config: f.config, Dir: f.run.Dir,
				Name: fmt.Sprintf("%s-%d", f.Queue, i+1),
			})
			return err
		})
	}
	return g.Wait()
}

// Stop stops the scanners with SIGTERM. A second call does nothing.
func (f *Fleet) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	scanners := f.scanners
	f.scanners = nil
	return fleet.StopAll(ctx, scanners)
}

// KillOne kills a scanner with SIGKILL. The fleet goes on without it.
func (f *Fleet) KillOne() error {
	victim := f.scanners[0]
	f.scanners = f.scanners[1:]
	return victim.Kill()
}

// PIDs returns the scanners' process IDs.
func (f *Fleet) PIDs() []int {
	pids := make([]int, len(f.scanners))
	for i, s := range f.scanners {
		pids[i] = s.PID()
	}
	return pids
}

// topic returns the topic for the task with this number.
func (f *Fleet) topic(number int) string {
	if n := number % f.cfg.Topics; n > 0 {
		return fmt.Sprintf("%s-%d", topicName, n)
	}
	return topicName
}

// Metric returns the sum of a counter of the first topic over all scanners.
func (f *Fleet) Metric(ctx context.Context, name string) (float64, error) {
	series := fmt.Sprintf("%s{topic=%q} ", name, topicName)
	var total float64
	for _, s := range f.scanners {
		var page bytes.Buffer
		if err := s.Get(ctx, "/metrics", &page); err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(page.String(), "\n"+series)
		if !ok {
			return 0, fmt.Errorf("%s exports no %s", s.Admin(), series)
		}
		text, _, _ := strings.Cut(rest, "\n")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", series, err)
		}
		total += value
	}
	return total, nil
}

// Scrape reads the metrics of one scanner. It returns the page's bytes and its number of series.
func (f *Fleet) Scrape(ctx context.Context) (size, series int, err error) {
	var page bytes.Buffer
	if err := f.scanners[0].Get(ctx, "/metrics", &page); err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(page.Bytes()) {
		if line[0] != '#' {
			series++
		}
	}
	if !bytes.Contains(page.Bytes(), []byte("\nduefleet_pending_tasks{")) {
		return 0, 0, fmt.Errorf("%s counts no tasks of shards", f.scanners[0].Admin())
	}
	return page.Len(), series, nil
}

// requests converts tasks to requests of the library.
func (f *Fleet) requests(tasks []Task) []producer.Request {
	requests := make([]producer.Request, len(tasks))
	for i, t := range tasks {
		requests[i] = producer.Request{Topic: f.topic(t.Number), ID: t.ID(), When: producer.At(t.Due), Payload: t.Payload}
	}
	return requests
}

// Schedule calls the library's Schedule for one task, and ScheduleMany for more.
func (f *Fleet) Schedule(ctx context.Context, tasks []Task) error {
	requests := f.requests(tasks)
	if len(requests) == 1 {
		_, err := f.Client.Schedule(ctx, requests[0])
		return err
	}
	return firstError(f.Client.ScheduleMany(ctx, requests))
}

// firstError returns the first error of the results, or nil.
func firstError(results []producer.Result) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// Fill schedules the tasks with the numbers from up to, but not including, to. It makes
// four concurrent calls, with batches of 500.
func Fill(ctx context.Context, s Scheduler, from, to int, due time.Time) error {
	return fill(ctx, s, from, to, due, PayloadSize)
}

// fill is Fill with a payload size in bytes. A call has at most 4 MiB of payloads.
func fill(ctx context.Context, s Scheduler, from, to int, due time.Time, bytes int) error {
	const calls, most = 4, 4 << 20
	batch := min(500, most/bytes)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(calls)
	for n := from; n < to; n += batch {
		g.Go(func() error { return s.Schedule(ctx, SizedTasks(n, min(n+batch, to), due, bytes)) })
	}
	return g.Wait()
}

// Pending returns how many tasks of the first topic are stored, in all shards.
func (f *Fleet) Pending(ctx context.Context) (int64, error) {
	pipe := f.run.Redis.Client.Pipeline()
	cards := make([]*redis.IntCmd, f.cfg.Shards)
	for i := range cards {
		cards[i] = pipe.ZCard(ctx, fmt.Sprintf("%s:due:{%s:%d}", prefix, topicName, i))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	var n int64
	for _, c := range cards {
		n += c.Val()
	}
	return n, nil
}

// awaitPending waits until at most n tasks of the first topic are stored.
func (f *Fleet) awaitPending(ctx context.Context, n int64) error {
	return Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		left, err := f.Pending(ctx)
		return left <= n, err
	})
}

// ErrSlow means that the machine could not prepare a measurement in time.
var ErrSlow = errors.New("the tasks were not stored before they were due: the machine is too slow or too busy")

// Backlog describes tasks that become due at one instant, after all of them are stored.
type Backlog struct {
	// From is the number of the first task, Tasks the number of tasks.
	From, Tasks int
	// Bytes is the size of each payload. Defaults to PayloadSize.
	Bytes int
	// Others is the number of other stored tasks, which are due much later and stay.
	Others int64
	// Begin, if not nil, is called before the first task is stored, and AtDue at the due
	// time. If storing the tasks takes too long, Drain tries again and calls both again.
	Begin, AtDue func() error
}

// Drain stores a backlog and waits until all of it is delivered and settled. It returns
// the rate in tasks per second, counted from the due time.
func (f *Fleet) Drain(ctx context.Context, b Backlog) (rate float64, err error) {
	const perTask, perByte, tries = 25 * time.Microsecond, 10 * time.Nanosecond, 4
	if b.Bytes == 0 {
		b.Bytes = PayloadSize
	}
	ahead := 2*time.Second + time.Duration(b.Tasks)*(perTask+time.Duration(b.Bytes)*perByte)
	for range tries {
		rate, err = f.drain(ctx, b, ahead)
		if !errors.Is(err, ErrSlow) {
			return rate, err
		}
		ahead *= 3
	}
	return 0, err
}

func (f *Fleet) drain(ctx context.Context, b Backlog, ahead time.Duration) (rate float64, err error) {
	if err := call(b.Begin); err != nil {
		return 0, err
	}
	due := time.Now().Add(ahead).Truncate(time.Millisecond)
	if err := fill(ctx, f, b.From, b.From+b.Tasks, due, b.Bytes); err != nil {
		return 0, err
	}
	late := !time.Now().Before(due)
	if err := Sleep(ctx, time.Until(due)); err != nil {
		return 0, err
	}
	if err := call(b.AtDue); err != nil {
		return 0, err
	}
	if err := f.awaitPending(ctx, b.Others); err != nil {
		return 0, err
	}
	rate = float64(b.Tasks) / time.Since(due).Seconds()
	if late {
		return 0, errors.Join(ErrSlow, f.run.Purge(f.Queue))
	}
	return rate, nil
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}
