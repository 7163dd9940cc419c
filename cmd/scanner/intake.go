package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

func intakeCommand(s *settings) *cobra.Command {
	return cli.Group("intake", "Acts on the messages that wait for a topic's scanners", intakeRefuse(s))
}

// refusing holds the flags of intake refuse.
type refusing struct {
	limit  int
	reason string
	wait   time.Duration
	format cli.FormatFlag
}

func intakeRefuse(s *settings) *cobra.Command {
	r := &refusing{limit: 1, reason: "an operator refused it", wait: 2 * time.Minute, format: cli.NewListFlag()}
	cmd := &cobra.Command{
		Use:   "refuse TOPIC [--limit N] [--reason TEXT] [--wait D]",
		Short: "Sets the first messages of a topic's intake aside, so that those behind them go on",
		Long: `Sets the first messages of a topic's intake aside, so that those behind them go on. It is
for a message that scanners try without end, for example because its shard of Redis fails.
The message goes to the queue of refused messages, with the class "operator" and the reason
in its headers. Publish it to the intake again when you like.

Only one consumer has the queue at a time, so the verb waits until it is the one. A scanner
leaves the queue if it stores nothing for 30s. Then each other scanner has it before the
verb does. Scanners of a paused topic leave it at once: pause the topic, refuse the
message, and resume the topic.

It needs Redis, and RabbitMQ's rights to read the queue and to write to the exchange for
refused messages.`,
		Example: `  scanner topic pause orders --reason "a message of the intake is stuck"
  scanner intake refuse orders
  scanner topic resume orders`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error { return r.run(cmd, s, args[0]) }),
	}
	cmd.Flags().IntVar(&r.limit, "limit", r.limit, "how many messages to refuse at most")
	cmd.Flags().StringVar(&r.reason, "reason", r.reason, "why, for the header of the message")
	cli.DurationVar(cmd.Flags(), &r.wait, "wait", r.wait, "how long to wait for a message")
	cmd.Flags().VarP(&r.format, "output", "o", "how to print")
	registerAs(cmd)
	return cmd
}

func (r *refusing) run(cmd *cobra.Command, s *settings, topic string) error {
	switch {
	case r.limit < 1:
		return cli.UsageError("--limit: must be at least 1")
	case r.wait <= 0:
		return cli.UsageError("--wait: must be above 0")
	case r.reason == "" || len(r.reason) > topicconfig.MaxAuthor:
		return cli.UsageError(fmt.Sprintf("--reason: must be a text of 1 to %d bytes", topicconfig.MaxAuthor))
	}
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	in, err := s.intakeOf(cmd.Context(), cfg, topic)
	if err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error {
		e := bulk.Entry{Topic: topic, Filter: "the first messages of queue " + in.Queue}
		_, err := s.audited(cmd, store, e, func() (n bulk.Counts, err error) {
			err = r.refuse(cmd, cfg, store.Topic(topic), in, &n)
			return n, err
		})
		return err
	})
}

// intakeOf returns the settings of a topic's intake.
func (s *settings) intakeOf(ctx context.Context, cfg *config.Config, name string) (config.Intake, error) {
	var topic config.Topic
	if cfg.Consul.Addr != "" {
		docs, err := openDocuments(cfg)
		if err != nil {
			return config.Intake{}, err
		}
		doc, err := docs.Find(ctx, name)
		if err = cmp.Or(err, doc.Err); err != nil {
			return config.Intake{}, err
		}
		topic = doc.Topic
	} else {
		whole, err := s.load()
		if err != nil {
			return config.Intake{}, err
		}
		there := false
		if topic, there = whole.Topics[name]; !there {
			return config.Intake{}, fmt.Errorf("%w: %s isn't in %s", task.ErrUnknownTopic, name, s.path)
		}
	}
	if !topic.TakesIn() {
		return config.Intake{}, fmt.Errorf("topic %s has no intake", name)
	}
	return *topic.Intake, nil
}

// refusedLine is a refused message as JSON.
type refusedLine struct {
	MessageID  string `json:"message_id"`
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
	Bytes      int    `json:"bytes"`
}

// refuse prints each message that it refused, and counts it in n.
func (r *refusing) refuse(cmd *cobra.Command, cfg *config.Config, topic *shard.Topic, in config.Intake,
	n *bulk.Counts) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "waiting for the first message of queue %s, for up to %s\n", in.Queue, r.wait)
	all := func(yield func(refusedLine) bool) error {
		return withBroker(cmd.Context(), cfg, func(ctx context.Context, receives *forward.Connection) error {
			return withBroker(ctx, cfg, func(ctx context.Context, publishes *forward.Connection) error {
				first := intake.First{Topic: topic, In: receives, Out: publishes, Queue: in.Queue, Refused: in.Refused(),
					Reason: r.reason, Wait: r.wait}
				return first.Refuse(ctx, r.limit, func(d *amqp.Delivery) {
					n.Matched, n.Changed = n.Matched+1, n.Changed+1
					yield(refusedLine{d.MessageId, d.Exchange, d.RoutingKey, len(d.Body)})
				})
			})
		})
	}
	if r.format.Format == cli.JSON {
		return printList(cmd.OutOrStdout(), r.format.Format, all, func(l refusedLine) refusedLine { return l })
	}
	const head = "MESSAGE ID\tEXCHANGE\tROUTING KEY\tBYTES"
	return printTable(cmd.OutOrStdout(), head, "", all, func(l refusedLine) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d", cli.OneLine(cmp.Or(l.MessageID, "-")), cli.OneLine(l.Exchange),
			cli.OneLine(cmp.Or(l.RoutingKey, "-")), l.Bytes)
	})
}

// withBroker calls work with a connection to the configured RabbitMQ, which receives and
// publishes.
func withBroker(ctx context.Context, cfg *config.Config, work func(context.Context, *forward.Connection) error) error {
	broker, err := brokerOf(cfg)
	if err != nil {
		return err
	}
	connection, err := forward.New(broker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = connection.Run(ctx) }) // it returns no error before ctx ends
	return work(ctx, connection)
}

// brokerOf returns the settings of a connection to the configured RabbitMQ.
func brokerOf(cfg *config.Config) (forward.Config, error) {
	secure, err := connect.ReadTLS(cfg.RabbitMQ.TLS)
	if err != nil {
		return forward.Config{}, fmt.Errorf("rabbitmq.tls: %w", err)
	}
	return forward.Config{
		URLs: cfg.RabbitMQ.URLs, TLS: secure, Name: "duefleet topic", Receives: true,
		Advice: func(text string) string { return connect.Advice("rabbitmq", text) },
	}, nil
}
