package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	verifyMostRate = 10_000
	// verifyMostOutstanding limits the tasks that are scheduled and not delivered, because
	// verify remembers each of them.
	verifyMostOutstanding = 1_000_000
	verifyDay             = 24 * time.Hour
	// verifyLinger is how long verify still listens for repeats after the last delivery.
	verifyLinger = time.Second
	// verifyCleanup limits each step of the end: finding lost tasks, cancelling, deleting the
	// queue.
	verifyCleanup = time.Minute
)

// verifyFlags are the flags of the verb verify.
type verifyFlags struct {
	topic       string
	rabbitmqURL string
	exchange    string
	shared      bool
	rate        int
	long        time.Duration
	delay       time.Duration
	wait        time.Duration
	maxLate     time.Duration
	payload     int
}

func verifyCommand(conn *connection) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify TOPIC",
		Short: "Tests an installation: schedules tasks, consumes them, and reports lost, early and repeated ones",
		Long: `Tests an installation from outside. It schedules tasks of its own at --rate for --for, each
due after a random delay of up to --delay. It consumes them from a queue of its own, and
reports lost, early, repeated and late ones. Meanwhile, kill scanners, RabbitMQ, Consul or a
Redis that keeps its data, or change the shard count.

It reads the topic's settings and the fleet, with the rights of deploy/redis/operator.acl.
With --exchange it doesn't, and the rights of a producer are enough.

Use a topic of its own, made with scanner topic create. The tasks have a routing key that
only verify's queue is bound with. In a topic that applications use, they don't get these
tasks, unless a queue is bound with a pattern such as #. A fanout or headers exchange sends
every task to all queues, so verify refuses it without --shared.

RabbitMQ's address comes from the rabbitmq section of --config, DUEFLEET_RABBITMQ_URLS, or
--rabbitmq-url. Other users of the machine can read a flag: keep passwords out of it.

A task is early if it arrives before its due time by Redis's clock, by more than the error
with which verify knows that clock. The report has the largest error. A repeat is marked if
RabbitMQ or a scanner says that the message may be a repeat. A crash may cause marked
repeats. A task is lost if it hasn't arrived --wait after the last due time. Set --wait
longer than the topic's lease and every outage. verify shows where up to ten lost tasks are.

While Redis is unavailable, verify repeats the call with the same IDs and due times. It
counts outages of scheduling and doesn't make up for the tasks of that time.

At the end, and after Ctrl-C, it cancels what is left of its tasks and deletes its queue. If
it is killed, RabbitMQ deletes the queue after an hour without a consumer, and scanners park
the remaining tasks. Their IDs begin with verify-.

The exit code is 1 if a task is lost, early or repeated without a mark, if --max-late is
exceeded, and after Ctrl-C.`,
		Example: `  scanner topic create verify declare.queue=verify.due --config config.yaml
  producer verify verify --config config.yaml --rate 500 --for 10m
  producer verify verify --config config.yaml --max-late 1s -o json`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return verify(cmd, conn, &flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.topic, "topic", "", "the topic; the same as TOPIC")
	f.StringVar(&flags.rabbitmqURL, "rabbitmq-url", "",
		"amqp or amqps URL of RabbitMQ (default rabbitmq.urls of the configuration, amqp://guest:guest@127.0.0.1:5672/)")
	f.StringVar(&flags.exchange, "exchange", "", "the topic's exchange (default: read from the topic's settings)")
	f.BoolVar(&flags.shared, "shared", false, "accept an exchange that sends the tasks to other queues, too")
	f.IntVar(&flags.rate, "rate", 100, fmt.Sprintf("tasks to schedule per second, 1 to %d", verifyMostRate))
	cli.DurationVar(f, &flags.long, "for", time.Minute, "how long to schedule, 1s to 24h")
	cli.DurationVar(f, &flags.delay, "delay", 5*time.Second, "longest delay of a task, up to 24h")
	cli.DurationVar(f, &flags.wait, "wait", time.Minute, "how long to wait for tasks after the last due time, up to 24h")
	cli.DurationVar(f, &flags.maxLate, "max-late", 0, "fail if a task arrives later than this (default no limit)")
	f.IntVar(&flags.payload, "payload-bytes", 100, "size of each payload in bytes, up to --max-payload")
	return cmd
}

// check checks the values of the flags.
func (f *verifyFlags) check(cmd *cobra.Command, maxPayload int) error {
	if f.topic == "" && !cmd.Flags().Changed("topic") {
		return cli.UsageError("name a topic")
	}
	if err := task.CheckTopic(f.topic); err != nil {
		return err
	}
	if f.rate < 1 || f.rate > verifyMostRate {
		return cli.UsageError(fmt.Sprintf("--rate %d: must be 1 to %d", f.rate, verifyMostRate))
	}
	for _, limit := range []struct {
		flag        string
		value, from time.Duration
	}{{"for", f.long, time.Second}, {"delay", f.delay, 0}, {"wait", f.wait, 0}, {"max-late", f.maxLate, 0}} {
		if limit.value < limit.from || limit.value > verifyDay {
			return cli.UsageError(fmt.Sprintf("--%s %v: must be %v to 24h", limit.flag, limit.value, limit.from))
		}
	}
	if f.payload < 0 || f.payload > maxPayload {
		return cli.UsageError(fmt.Sprintf("--payload-bytes %d: must be 0 to %d", f.payload, maxPayload))
	}
	if most := float64(f.rate) * min(f.long, f.delay).Seconds(); most > verifyMostOutstanding {
		return cli.UsageError(fmt.Sprintf("--rate %d with --delay %v: up to %.0f tasks would wait at once, more than %d; "+
			"lower one of them", f.rate, f.delay, most, verifyMostOutstanding))
	}
	if f.rabbitmqURL == "" && !cmd.Flags().Changed("rabbitmq-url") {
		return nil
	}
	if _, err := amqpconn.Parse(f.rabbitmqURL, nil); err != nil {
		return cli.UsageError("--rabbitmq-url: " + err.Error())
	}
	return nil
}

// verification is one run of verify.
type verification struct {
	flags    *verifyFlags
	client   *producer.Client
	clock    *redisClock
	queue    *verifyQueue
	ledger   *verifyLedger
	schedule *verifySchedule
	began    time.Time
}

func verify(cmd *cobra.Command, conn *connection, flags *verifyFlags) (err error) {
	if err := flags.check(cmd, conn.maxPayload); err != nil {
		return err
	}
	ctx := cmd.Context()
	server := conn.server(cmd)
	options, err := server.Options(nil)
	if err != nil {
		return err
	}
	store, closeStore, err := shard.Open(nil, options, server.Prefix, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	exchange, err := findExchange(ctx, store, server.Prefix, flags)
	if err != nil {
		return err
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	v := verification{flags: flags, client: client, clock: newRedisClock(store.Client(ctx)), began: time.Now()}
	if err := v.clock.sample(ctx); err != nil {
		return err
	}
	run := fmt.Sprintf("%d-%08x", time.Now().Unix(), rand.Uint32())
	v.ledger = newVerifyLedger("verify-" + run + "-")
	v.queue, err = newVerifyQueue(conn, flags, exchange, "duefleet.verify."+run, v.arrived)
	if err != nil {
		return err
	}
	v.schedule = newVerifySchedule(&v)
	first, err := v.queue.begin(ctx)
	if err != nil {
		return err
	}
	failure := v.run(ctx, first, cmd.ErrOrStderr())
	report := v.end(ctx, failure != nil)
	if err := conn.print(cmd, report.text(), report); err != nil {
		return err
	}
	return report.verdict(failure, flags.maxLate)
}

// run schedules the tasks and waits for them. It returns why it ended early: ctx, or an
// error of scheduling.
func (v *verification) run(ctx context.Context, first *verifySession, bar io.Writer) error {
	// The goroutines end after the scheduling, also if ctx ends.
	background, halt := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{}, 3)
	for _, work := range []func(){
		func() { v.clock.run(background) },
		func() { v.queue.run(background, first) },
		func() { v.show(background, bar) },
	} {
		go func() { work(); ended <- struct{}{} }()
	}
	err := v.schedule.run(ctx)
	if err == nil {
		err = v.await(ctx)
	}
	halt()
	for range cap(ended) {
		<-ended
	}
	return err
}

// await waits until all tasks are delivered, at most for --wait after the last due time.
func (v *verification) await(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(v.schedule.untilLast() + v.flags.wait)
	var complete time.Time
	for time.Now().Before(limit) {
		if v.ledger.left() > 0 {
			complete = time.Time{}
		} else if complete.IsZero() {
			complete = time.Now()
		} else if time.Since(complete) >= verifyLinger {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// end looks for lost tasks, cancels what is stored, deletes the queue, and returns the report.
func (v *verification) end(ctx context.Context, early bool) *verifyReport {
	seconds := time.Since(v.began).Seconds()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verifyCleanup)
	defer cancel()
	r := v.report(seconds)
	r.Interrupted = early
	if !early {
		r.find(ctx, v)
	}
	r.Cleanup = cmp.Or(v.cancel(ctx, r), v.queue.remove(ctx))
	return r
}

// cancel cancels the tasks of this run that are stored. It returns what the operator must
// do, "" for nothing.
func (v *verification) cancel(ctx context.Context, r *verifyReport) (left string) {
	if wait := time.Until(v.schedule.uncertainUntil); wait > 0 {
		time.Sleep(wait) // then no lost call can store a task any more
	}
	m, err := v.client.CancelMatching(ctx, producer.Matching{Topic: v.flags.topic, Prefix: v.ledger.prefix})
	r.Cancelled = m.Changed
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return fmt.Sprintf("tasks of this run may remain (%s): producer cancel %s --id-prefix %s",
			cli.OneLine(err.Error()), v.flags.topic, v.ledger.prefix)
	}
	return ""
}

// verifyRefused reports whether an error of Redis stays until somebody changes something.
func verifyRefused(err error) bool {
	text := err.Error()
	return errors.Is(err, task.ErrInvalid) || errors.Is(err, task.ErrUnknownTopic) ||
		strings.Contains(text, "NOPERM") || strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH")
}
