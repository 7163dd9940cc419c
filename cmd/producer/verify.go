package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/verify"
	"github.com/duefleet/duefleet/task"
)

const verifyMostRate = 10_000

func verifyCommand(conn *connection) *cobra.Command {
	var cfg verify.Config
	var rabbitmqURL string
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
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, conn, &cfg, rabbitmqURL) }),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Topic, "topic", "", "the topic; the same as TOPIC")
	f.StringVar(&rabbitmqURL, "rabbitmq-url", "",
		"amqp or amqps URL of RabbitMQ (default rabbitmq.urls of the configuration, amqp://guest:guest@127.0.0.1:5672/)")
	f.StringVar(&cfg.Exchange, "exchange", "", "the topic's exchange (default: read from the topic's settings)")
	f.BoolVar(&cfg.Shared, "shared", false, "accept an exchange that sends the tasks to other queues, too")
	f.IntVar(&cfg.Rate, "rate", 100, fmt.Sprintf("tasks to schedule per second, 1 to %d", verifyMostRate))
	cli.DurationVar(f, &cfg.Duration, "for", time.Minute, "how long to schedule, 1s to 24h")
	cli.DurationVar(f, &cfg.Delay, "delay", 5*time.Second, "longest delay of a task, up to 24h")
	cli.DurationVar(f, &cfg.Wait, "wait", time.Minute, "how long to wait for tasks after the last due time, up to 24h")
	cli.DurationVar(f, &cfg.MaxLate, "max-late", 0, "fail if a task arrives later than this (default no limit)")
	f.IntVar(&cfg.Payload, "payload-bytes", 100, "size of each payload in bytes, up to --max-payload")
	return cmd
}

// checkVerify checks the values of the flags.
func checkVerify(cmd *cobra.Command, cfg *verify.Config, maxPayload int, rabbitmqURL string) error {
	if cfg.Topic == "" && !cmd.Flags().Changed("topic") {
		return cli.UsageError("name a topic")
	}
	if err := task.CheckTopic(cfg.Topic); err != nil {
		return err
	}
	if cfg.Rate < 1 || cfg.Rate > verifyMostRate {
		return cli.UsageError(fmt.Sprintf("--rate %d: must be 1 to %d", cfg.Rate, verifyMostRate))
	}
	for _, limit := range []struct {
		flag        string
		value, from time.Duration
	}{{"for", cfg.Duration, time.Second}, {"delay", cfg.Delay, 0}, {"wait", cfg.Wait, 0}, {"max-late", cfg.MaxLate, 0}} {
		if limit.value < limit.from || limit.value > 24*time.Hour {
			return cli.UsageError(fmt.Sprintf("--%s %v: must be %v to 24h", limit.flag, limit.value, limit.from))
		}
	}
	if cfg.Payload < 0 || cfg.Payload > maxPayload {
		return cli.UsageError(fmt.Sprintf("--payload-bytes %d: must be 0 to %d", cfg.Payload, maxPayload))
	}
	if most := float64(cfg.Rate) * min(cfg.Duration, cfg.Delay).Seconds(); most > verify.MaxOutstanding {
		return cli.UsageError(fmt.Sprintf("--rate %d with --delay %v: up to %.0f tasks would wait at once, more than %d; "+
			"lower one of them", cfg.Rate, cfg.Delay, most, verify.MaxOutstanding))
	}
	if !cmd.Flags().Changed("rabbitmq-url") {
		return nil
	}
	if _, err := amqpconn.Parse(rabbitmqURL, nil); err != nil {
		return cli.UsageError("--rabbitmq-url: " + err.Error())
	}
	return nil
}

func runVerify(cmd *cobra.Command, conn *connection, cfg *verify.Config, rabbitmqURL string) (err error) {
	if err := checkVerify(cmd, cfg, conn.maxPayload, rabbitmqURL); err != nil {
		return err
	}
	server := conn.server(cmd)
	if cfg.Options, err = connect.Redis(server, nil); err != nil {
		return err
	}
	cfg.Prefix, cfg.RabbitMQ = server.Prefix, conn.settings.RabbitMQ
	if rabbitmqURL != "" {
		cfg.RabbitMQ.URLs, cfg.RabbitMQ.URLsFile = []string{rabbitmqURL}, ""
	}
	if cfg.Client, err = conn.open(cmd); err != nil {
		return err
	}
	defer cfg.Client.Close()
	test, err := verify.New(*cfg)
	if err != nil {
		return err
	}
	shown, hide := context.WithCancel(cmd.Context())
	var bar sync.WaitGroup
	bar.Go(func() { showVerify(shown, cmd.ErrOrStderr(), test, int64(cfg.Duration.Seconds()*float64(cfg.Rate))) })
	report, failure := test.Run(cmd.Context())
	hide()
	bar.Wait()
	if report == nil {
		return failure
	}
	return cmp.Or(conn.print(cmd, report.Text(), report), failure)
}

// showVerify draws a progress bar on a terminal until ctx ends. all is about the number of
// tasks.
func showVerify(ctx context.Context, out io.Writer, test *verify.Test, all int64) {
	if !cli.OnTerminal(os.Stderr) {
		return
	}
	bar := progressbar.NewOptions64(all, progressbar.OptionSetWriter(out), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(10), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
	defer func() { _ = bar.Finish() }() // it only draws
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			scheduled, delivered, outstanding := test.Progress()
			bar.Describe(fmt.Sprintf("%d scheduled, %d delivered, %d outstanding", scheduled, delivered, outstanding))
			_ = bar.Set64(min(delivered, all))
		}
	}
}
