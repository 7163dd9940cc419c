//go:build chaos

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// programs holds the two programs, built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	if order := os.Getenv(appEnv); order != "" {
		os.Exit(runApp(order))
	}
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	code := fleet.RunTests(m, fleet.BuildConfig{}, &programs)
	if err := results.publish(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	appTopic     = "application"
	appLength    = time.Minute
	appCallers   = 64
	appSlots     = 500
	appConsumers = 3
	appKills     = 10 // of scanners, and as many of consumers
	// appCalls is the number of calls for an ID, after which its slot takes another ID.
	appCalls = 20
)

// slot has one ID at a time. Its lock puts the calls for that ID in order.
type slot struct {
	number  int
	mu      sync.Mutex
	name    string
	ids     int
	version int
	ops     []op // for the current ID
}

// application is a producer, and consumers that are processes.
type application struct {
	r         *harness
	seed      uint64
	slots     [appSlots]slot
	consumers []*fleet.Scanner // processes of this test binary
	files     []string         // the consumers' ledgers
	samples   int              // of the queue
	waiting   int              // samples with messages that wait

	mu     sync.Mutex
	ledger ledger
}

// TestWholeApplication: goroutines schedule, cancel and reschedule the same IDs, consumers
// handle them, fail, and ask for next steps. Scanners and consumers are killed, and
// consumers stand still in between, so that messages wait in the queue.
func TestWholeApplication(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("the application: go test -tags chaos ./test/chaos -run TestWholeApplication -seed %d", seed)
	a := &application{seed: seed, ledger: ledger{ops: map[string][]op{}}}
	a.r = newHarness(t, options{more: map[string]fleet.Topic{
		appTopic: {"lease": leaseTime.String(), "window": inFlight / 2},
	}})
	a.r.await("the queue to exist", func() bool { _, err := a.r.inspect(appTopic + ".due"); return err == nil })
	t.Cleanup(a.explainConsumers)
	for range appConsumers {
		a.startConsumer()
	}
	for i := range a.slots {
		a.slots[i].number = i
	}
	ctx, end := context.WithTimeout(t.Context(), appLength)
	defer end()
	var parts sync.WaitGroup
	for i := range appCallers {
		parts.Go(func() { a.call(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) }) //nolint:gosec // must be repeatable
	}
	parts.Go(func() { a.kill(a.r.scanners, appCallers) })
	parts.Go(func() { a.kill(a.consumers, appCallers+1) })
	parts.Go(func() { a.standStill(ctx) })
	parts.Go(func() { a.watchQueue(ctx) })
	parts.Wait()
	a.verdict()
}

// call makes calls until ctx ends.
func (a *application) call(ctx context.Context, draw *rand.Rand) {
	for {
		s := &a.slots[draw.IntN(appSlots)]
		if err := a.callOne(s, draw.IntN(100), time.Duration(20+draw.IntN(800))*time.Millisecond); err != nil {
			a.r.t.Error(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(10+draw.IntN(60)) * time.Millisecond):
		}
	}
}

func (a *application) callOne(s *slot, draw int, delay time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ops)%appCalls == 0 {
		s.ids, s.ops = s.ids+1, nil
		s.name = fmt.Sprintf("%d-%d", s.number, s.ids)
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(a.r.t.Context()), patience)
	defer end()
	o, err := op{Verb: verbSchedule, Began: time.Now().UnixNano()}, error(nil)
	var due time.Time
	switch client := a.r.recorder.Client; {
	case draw < 25:
		o.Verb = verbCancel
		err = client.Cancel(ctx, appTopic, s.name)
	case draw < 45:
		o.Verb = verbReschedule
		due, err = client.Reschedule(ctx, appTopic, s.name, producer.In(delay))
	default:
		s.version++
		o.Version = s.version
		body, _ := json.Marshal(payload{Version: s.version})
		due, err = client.Schedule(ctx, producer.Request{Topic: appTopic, ID: s.name, Payload: body,
			When: producer.In(delay)})
	}
	o.Returned = time.Now().UnixNano()
	if err != nil && (o.Verb == verbSchedule || !errors.Is(err, task.ErrNotFound)) {
		return err
	}
	if err == nil && o.Verb != verbCancel {
		o.Due = due.UnixMilli()
	}
	s.ops = append(s.ops, o)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.ops[s.name] = append(a.ledger.ops[s.name], o)
	return nil
}

// startConsumer starts one more consumer.
func (a *application) startConsumer() {
	a.r.t.Helper()
	name := fmt.Sprintf("consumer-%d", len(a.consumers)+1)
	file := filepath.Join(a.r.dir, name+".ledger")
	order, err := json.Marshal(appOrder{a.r.urls, a.r.redis.Addr(), a.r.settings.RedisPrefix, file, a.seed})
	check.OK(a.r.t, err)
	self, err := os.Executable()
	check.OK(a.r.t, err)
	c, err := fleet.StartScanner(a.r.t.Context(), fleet.ScannerConfig{
		Binary: self, Config: a.r.config, Dir: a.r.dir, Name: name, Unready: true,
		Env: []string{appEnv + "=" + string(order)},
	})
	check.OK(a.r.t, err)
	a.consumers, a.files = append(a.consumers, c), append(a.files, file)
}

// kill kills processes and starts them again.
func (a *application) kill(all []*fleet.Scanner, stream uint64) {
	draw := rand.New(rand.NewPCG(a.seed, stream)) //nolint:gosec // must be repeatable
	began := time.Now()
	for i := range appKills {
		at := appLength*time.Duration(i)/appKills + time.Duration(draw.Int64N(int64(2*time.Second)))
		victim, down := all[draw.IntN(len(all))], 200*time.Millisecond+time.Duration(draw.Int64N(int64(2*time.Second)))
		a.r.lasts(time.Until(began.Add(at)))
		a.r.must(victim.Kill())
		a.r.lasts(down)
		a.r.again(victim)
	}
}

// standStill stops all consumers again and again.
func (a *application) standStill(ctx context.Context) {
	draw := rand.New(rand.NewPCG(a.seed, appCallers+2)) //nolint:gosec // must be repeatable
	for ctx.Err() == nil {
		for _, c := range a.consumers {
			a.r.must(c.Pause())
		}
		a.r.lasts(300*time.Millisecond + time.Duration(draw.Int64N(int64(1500*time.Millisecond))))
		for _, c := range a.consumers {
			a.r.must(c.Resume())
		}
		a.r.lasts(300*time.Millisecond + time.Duration(draw.Int64N(int64(900*time.Millisecond))))
	}
}

// watchQueue counts how often messages wait in the queue.
func (a *application) watchQueue(ctx context.Context) {
	a.r.broker(func(ch *amqp.Channel) error {
		for ; ctx.Err() == nil; a.samples++ {
			q, err := ch.QueueDeclarePassive(appTopic+".due", true, false, false, false, nil)
			if err != nil {
				return err
			}
			if q.Messages > 0 {
				a.waiting++
			}
			a.r.lasts(100 * time.Millisecond)
		}
		return nil
	})
}

// drain waits until all is handled, or nothing happens any more. It returns the number of
// tasks that are stored then.
func (a *application) drain() (stored int64) {
	a.r.t.Helper()
	const quiet = 5 * time.Second // longer than any handler and any delay
	var since time.Time
	entries := -1
	a.r.await("the application to come to rest", func() bool {
		q, err := a.r.inspect(appTopic + ".due")
		stored = a.r.status().Topic(appTopic).Pending
		a.read()
		if n := len(a.ledger.entries); err != nil || q.Messages > 0 || stored > 0 || n != entries {
			since, entries = time.Now(), n
		}
		return time.Since(since) > quiet
	})
	return stored
}

// verdict waits until all is handled, and checks the ledger.
func (a *application) verdict() {
	loaded := time.Now()
	stored := a.drain()
	took := time.Since(loaded)
	ctx, end := context.WithTimeout(context.WithoutCancel(a.r.t.Context()), patience)
	defer end()
	a.r.must(fleet.StopAll(ctx, a.consumers))
	a.r.stop()
	a.read()
	r := a.ledger.check()
	const fault = "application: consumers and scanners kill -9, ten times each"
	results.add(row{fault, fleet.Report{Promised: r.promised, Delivered: r.finished, Lost: r.promised - r.finished,
		Duplicated: r.repeats, Early: r.early}, r.gap, int(stored), 0})
	a.r.t.Logf("%d calls for %d IDs: %v; %d handler calls: %d retries, %d of next steps, %d repeats; %d deliveries "+
		"superseded, %d done before; %d kills; messages waited in %d of %d samples; at rest %s after the last call",
		r.calls[verbSchedule]+r.calls[verbReschedule]+r.calls[verbCancel], len(a.ledger.ops), r.calls, r.handled,
		r.retries, r.steps, r.repeats, r.superseded, r.acked, 2*appKills, a.waiting, a.samples,
		took.Round(time.Millisecond))
	a.r.t.Logf("%d versions promised, %d handled to their end, %d early, %d parked, %d left; %d first handled after a "+
		"newer one; %d reschedules moved an older version; %d begun after a cancel that came between question and "+
		"handler, at most %s later; %d questions not seen", r.promised, r.finished, r.early, r.parked, stored, r.late,
		len(r.movedOld), r.between, r.latest.Round(time.Millisecond), r.unasked)
	for i, wrong := range r.wrong {
		if i < 10 {
			a.r.t.Error(wrong)
		}
	}
	if len(r.wrong) > 0 || stored > 0 {
		a.r.t.Errorf("%d broken promises, %d tasks stored", len(r.wrong), stored)
	}
	if r.superseded == 0 || a.waiting*2 < a.samples || r.retries == 0 || r.steps == 0 {
		a.r.t.Error("the load checked too little")
	}
}

// read reads the consumers' ledgers.
func (a *application) read() {
	a.r.t.Helper()
	a.ledger.entries = a.ledger.entries[:0]
	for _, file := range a.files {
		content, err := os.ReadFile(file) //nolint:gosec // a file of ours
		check.OK(a.r.t, err)
		for line := range bytes.Lines(content) {
			var e entry
			if json.Unmarshal(line, &e) == nil { // a killed process may leave a part of a line
				a.ledger.entries = append(a.ledger.entries, e)
			}
		}
	}
}

// explainConsumers logs the last lines of the consumers' logs if the test failed.
func (a *application) explainConsumers() {
	for _, c := range a.consumers {
		if log, err := os.ReadFile(c.Log()); err == nil && a.r.t.Failed() {
			a.r.t.Logf("the end of %s:\n%s", filepath.Base(c.Log()), log[max(0, len(log)-2000):])
		}
	}
}
