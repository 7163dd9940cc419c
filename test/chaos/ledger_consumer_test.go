//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	inject "github.com/duefleet/duefleet/test/faults"
)

// appEnv is the environment variable that makes a process of this test binary a consumer
// of TestWholeApplication. Its value is an appOrder.
const appEnv = "DUEFLEET_TEST_APPLICATION"

// appOrder tells such a process where to consume, and where to write its ledger.
type appOrder struct {
	URLs   []string
	Redis  string
	Prefix string
	Ledger string
	Seed   uint64
}

// payload names the version of a task, and the step of its chain.
type payload struct {
	Version, Step int
	// Starts holds the first due times of the earlier steps, in ms.
	Starts []int64
}

// what names a kind of entry.
type what string

const (
	begun      what = "begun"      // a handler call begins.
	ended      what = "ended"      // that call returned.
	remembered what = "remembered" // Redis has noted that the delivery is done.
	over       what = "over"       // a delivery is superseded: no handler call.
	repeated   what = "repeated"   // a delivery was done before: no handler call.
	parkedTask what = "parked"
)

// entry is one line of a consumer's ledger.
type entry struct {
	What what
	ID   string
	Due  int64 // of the delivery, in ms
	At   int64 // when, in Unix ns. A remembered delivery: when the reply arrived.
	// Run and Call identify a handler call: the process and a number.
	Run  string
	Call int
	// The rest is set only if What is begun.
	Asked   int64 // when the consumer asked Redis about this delivery, in Unix ns
	First   int64 // first due time, in ms
	Attempt int
	Payload payload
	// Result of a call that ended.
	Result result
}

// result is how a handler call ended.
type result string

const (
	finished  result = "finished"
	stepped   result = "next step"
	failed    result = "failed"
	postponed result = "postponed"
)

var errPlanned = errors.New("planned failure")

// app is a consumer process.
type app struct {
	appOrder
	run         string
	check, done string // texts of the scripts

	mu     sync.Mutex
	ledger io.Writer
	calls  int
	asked  map[string][]int64 // by ID and due, the deliveries that a handler will get
}

// runApp consumes until SIGTERM, and returns the exit code.
func runApp(order string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a := &app{run: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano()), asked: map[string][]int64{}}
	if err := a.consume(ctx, order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (a *app) consume(ctx context.Context, order string) (err error) {
	if err := json.Unmarshal([]byte(order), &a.appOrder); err != nil {
		return err
	}
	if a.check, err = shard.Script("check_delivery"); err != nil {
		return err
	}
	if a.done, err = shard.Script("done"); err != nil {
		return err
	}
	f, err := os.OpenFile(a.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	a.ledger = f
	fmt.Fprintln(f) // ends a line that a killed process left
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{a.Redis}})
	defer rdb.Close()
	inject.Around(rdb, a.watch)
	c, err := consumer.New(consumer.Config{
		URLs: a.URLs, Queue: appTopic + ".due", Redis: rdb, Prefix: a.Prefix, Concurrency: 8,
		Handler: a.handle, Policy: consumer.Exponential(50*time.Millisecond, 400*time.Millisecond, 30),
		OnParked: func(_ context.Context, t task.Task, _ error) { a.write(entry{What: parkedTask, ID: t.ID}) },
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// write adds a line to the ledger. The kernel has it when write returns, so it outlasts
// this process.
func (a *app) write(e entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Run = a.run
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = a.ledger.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// watch notes what Redis says about deliveries.
func (a *app) watch(ctx context.Context, r inject.Request) error {
	sent := time.Now().UnixNano()
	err := r.Send(ctx)
	for _, cmd := range r.Commands {
		c, ok := cmd.(*redis.Cmd)
		if !ok || c.Err() != nil || !runs(c, a.done) && !runs(c, a.check) {
			continue
		}
		key := fmt.Sprint(c.Args()[3])
		e := entry{What: remembered, ID: key[len(a.Prefix+":history:{"+appTopic+":") : len(key)-1]}
		_, _ = fmt.Sscan(fmt.Sprint(c.Args()[4]), &e.Due)
		text, _ := c.Text()
		switch {
		case runs(c, a.done):
		case shard.Disposition(text) == shard.Over:
			e.What = over
		case shard.Disposition(text) == shard.Done:
			e.What = repeated
		default:
			a.ask(e.ID, e.Due, sent)
			continue
		}
		a.write(e)
	}
	return err
}

// runs reports whether a command executes a script, by its hash or its text.
func runs(cmd redis.Cmder, text string) bool {
	return inject.Runs(cmd, text) || len(cmd.Args()) > 1 && cmd.Args()[1] == text
}

func (a *app) ask(id string, due, sent int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := fmt.Sprint(id, " ", due)
	a.asked[k] = append(a.asked[k], sent)
}

// take returns the earliest question about a delivery that no call has taken.
func (a *app) take(id string, due int64) (sent int64, call int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	k := fmt.Sprint(id, " ", due)
	if all := a.asked[k]; len(all) > 1 {
		sent, a.asked[k] = all[0], all[1:]
	} else if len(all) == 1 {
		sent = all[0]
		delete(a.asked, k)
	}
	return sent, a.calls
}

func (a *app) handle(ctx context.Context, d task.Delivery) error {
	at := time.Now().UnixNano()
	e := entry{What: begun, ID: d.ID, Due: d.Due.UnixMilli(), At: at, First: d.FirstDue.UnixMilli(), Attempt: d.Attempt}
	if err := json.Unmarshal(d.Payload, &e.Payload); err != nil {
		return consumer.Park(err)
	}
	e.Asked, e.Call = a.take(d.ID, e.Due)
	a.write(e)
	became, err := a.work(ctx, d, e)
	a.write(entry{What: ended, ID: d.ID, Due: e.Due, Call: e.Call, Result: became})
	return err
}

// work draws how the call ends. The same delivery always draws the same.
func (a *app) work(ctx context.Context, d task.Delivery, e entry) (result, error) {
	first := e.Due == e.First
	h := fnv.New64()
	fmt.Fprintln(h, e.ID, e.Payload.Version, e.Payload.Step, e.Attempt, first)
	draw := rand.New(rand.NewPCG(a.Seed, h.Sum64())) //nolint:gosec // must be repeatable
	length := time.Duration(1+draw.IntN(5)) * time.Millisecond
	if draw.IntN(12) == 0 {
		length = time.Duration(100+draw.IntN(300)) * time.Millisecond
	}
	select {
	case <-ctx.Done():
		return failed, ctx.Err()
	case <-time.After(length):
	}
	switch n := draw.IntN(100); {
	case n < 25 && e.Attempt <= 3:
		return failed, errPlanned
	case n >= 95 && first:
		return postponed, consumer.Later(errPlanned, 50*time.Millisecond)
	case n >= 75 && e.Payload.Step < 2:
		next, err := json.Marshal(payload{e.Payload.Version, e.Payload.Step + 1, append(e.Payload.Starts, e.First)})
		if err != nil {
			return failed, err
		}
		return stepped, d.NextWhen(task.In(time.Duration(100+draw.IntN(300))*time.Millisecond), next)
	}
	return finished, nil
}
