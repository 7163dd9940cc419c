package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

// removeFlags are the flags of topic rm.
type removeFlags struct {
	purge, unbind bool
	confirm       cli.Confirmation
}

func topicRemove(s *settings) *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "rm TOPIC [--purge] [--unbind-intake] [--yes]",
		Short: "Removes a topic; refuses while it holds tasks unless told to purge them",
		Long: `Removes a topic and its document in Consul. Refuses while the topic holds tasks, unless
--purge is given: then it removes them too. It says what it would remove and asks on a
terminal; elsewhere it needs --yes. Exit code 3: there is no such topic.

The queue of the topic's intake stays bound to its exchange. RabbitMQ then confirms what
is published there, and no scanner takes it. Before it asks, rm names the exchange, the
queue, and the command that unbinds them. --unbind-intake unbinds them once no scanner
consumes from the queue. From then on RabbitMQ drops what is published to an exchange that
no queue is bound to, so stop its publishers first. It deletes no queue.

"scanner topic undo" restores the document, but not the tasks.

Other tools can write a document under a name that no topic may have. To remove it, give
that name as "scanner topic ls" prints it.`,
		Args: anyName,
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if task.CheckTopic(args[0]) != nil {
				return removeMisnamed(cmd, s, args[0], f.confirm)
			}
			return f.run(cmd, s, args[0])
		}),
	}
	cmd.Flags().BoolVar(&f.purge, "purge", false, "also remove its tasks")
	cmd.Flags().BoolVar(&f.unbind, "unbind-intake", false, "afterwards unbind the queue of its intake")
	f.confirm.Register(cmd)
	registerAuthor(cmd)
	return cmd
}

// run removes the document, if Consul holds one, and the topic in Redis. Then it unbinds the
// intake as the flags ask.
func (f removeFlags) run(cmd *cobra.Command, s *settings, topic string) error {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	store, closing, err := openStore(cfg, 0, nil)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	if _, inFile := cfg.Topics[topic]; inFile && cfg.Consul.Addr == "" {
		return fmt.Errorf("topic %s is in the configuration file; take it out there first", topic)
	}
	removal := admin.Removal{Topic: store.Topic(topic), Purge: f.purge}
	pending, unknown := removal.Check(cmd.Context())
	if unknown != nil && !errors.Is(unknown, task.ErrUnknownTopic) {
		return unknown
	}
	var docs topicconfig.Documents
	var doc config.Document // without an index if there is none
	if cfg.Consul.Addr != "" {
		if docs, err = openDocuments(cfg); err == nil {
			doc, _, err = docs.Read(cmd.Context(), topic)
		}
		if err != nil {
			return err
		}
	}
	if unknown != nil && doc.Index == 0 {
		return unknown
	}
	left, err := leftByRemoval(cmd.Context(), cfg, docs, doc, store.Topic(topic))
	if err != nil {
		return err
	}
	f.printLeft(cmd, cfg, topic, left)
	what := "delete topic " + topic
	if f.purge || pending == 0 { // otherwise Run keeps the tasks of an interrupted removal
		what += " with " + cli.Counted(pending)
	}
	if err := f.confirm.Ask(cmd, what); err != nil {
		return err
	}
	if err := removeAll(cmd, docs, doc, removal); err != nil || !f.unbind {
		return err
	}
	return unbindIntakes(cmd, cfg, topic, left)
}

// removeAll removes the document, if there is one, and the topic in Redis.
func removeAll(cmd *cobra.Command, docs topicconfig.Documents, doc config.Document, removal admin.Removal) error {
	topic := removal.Topic.Name()
	if doc.Index > 0 {
		removed, err := docs.Remove(cmd.Context(), doc, authorOf(cmd))
		if err == nil {
			err = printUnkept(cmd, topic, removed)
		}
		if err != nil {
			return err
		}
	}
	purged, err := removal.Run(cmd.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s removed, with %d tasks\n", topic, purged)
	return err
}

// leftByRemoval returns the intakes that no scanner serves after a topic is removed. Its
// document has one, and the document in force may have another.
func leftByRemoval(ctx context.Context, cfg *config.Config, docs topicconfig.Documents, doc config.Document,
	topic *shard.Topic) ([]topicconfig.LeftIntake, error) {
	kept, err := topic.Store().Registry().Document(ctx, topic.Name())
	if err != nil {
		return nil, err
	}
	others := maps.Clone(cfg.Topics)
	if cfg.Consul.Addr != "" {
		if others, err = docs.Topics(ctx); err != nil {
			return nil, err
		}
	}
	delete(others, topic.Name())
	inForce := config.ParseDocument(topic.Name(), kept, 0)
	return topicconfig.LeftIntakes([]config.Topic{doc.Topic, inForce.Topic}, others), nil
}

// printLeft says which intakes no scanner serves after the removal, and how to unbind them.
func (f removeFlags) printLeft(cmd *cobra.Command, cfg *config.Config, topic string, left []topicconfig.LeftIntake) {
	for _, l := range left {
		advice := "let its publishers stop first, then unbind it: --unbind-intake, or " +
			topicconfig.UnbindCommand(l, vhost(cfg))
		if f.unbind {
			advice = "it will be unbound"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s: afterwards %s; %s\n", topic, topicconfig.LeftText(l), advice)
	}
}

// vhost returns the vhost of the first URL of RabbitMQ, for commands.
func vhost(cfg *config.Config) string {
	for _, url := range cfg.RabbitMQ.URLs {
		if uri, err := amqp.ParseURI(url); err == nil {
			return uri.Vhost
		}
	}
	return "VHOST"
}

// anyName requires one argument. It accepts names that no topic may have.
func anyName(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return cli.UsageError("name a topic")
	}
	return cli.NoArguments(cmd, args[1:])
}

// removeMisnamed removes a document whose name no topic may have. Redis holds nothing
// under such a name.
func removeMisnamed(cmd *cobra.Command, s *settings, name string, confirm cli.Confirmation) error {
	err := withTopics(s, func(w topicWork) error {
		doc, err := w.docs.Misnamed(cmd.Context(), name)
		if err != nil {
			return err
		}
		if err := confirm.Ask(cmd, fmt.Sprintf("delete the document %q, which is no topic's", name)); err != nil {
			return err
		}
		if err := w.docs.RemoveMisnamed(cmd.Context(), doc); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "document %q removed\n", name)
		return err
	})
	var inFile topicconfig.FileError
	if errors.As(err, &inFile) {
		return cli.UsageError(task.CheckTopic(name).Error())
	}
	return err
}

// unbindOld removes the bindings that earlier documents of a topic left.
func (w topicWork) unbindOld(cmd *cobra.Command, topic string) error {
	unbindAll := func(ctx context.Context, left topicconfig.Left) error {
		if err := unbind(ctx, w.settings, left.Bindings); err != nil {
			return err
		}
		return unbindIntakes(cmd, w.settings, topic, left.Intakes)
	}
	doc, gone, err := w.docs.UnbindOld(cmd.Context(), topic, w.fleet, unbindAll)
	if err != nil {
		return err
	}
	if len(gone.Bindings)+len(gone.Intakes) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"topic %s: its history has no other queue bound to exchange %s for its key: nothing to unbind\n", topic,
			doc.Topic.Exchange)
	}
	for _, b := range gone.Bindings {
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s: queue %s is unbound from exchange %s for key %s; what lies in it stays: "+
			"delete it when it is empty\n", topic, b.Queue, b.Exchange, b.RoutingKey)
	}
	return err
}

// unbind removes bindings at the configured RabbitMQ.
func unbind(ctx context.Context, cfg *config.Config, left []topicconfig.Binding) error {
	if len(left) == 0 {
		return nil
	}
	broker, err := brokerOf(cfg)
	if err != nil {
		return err
	}
	bindings := make([]forward.Binding, len(left))
	for i, b := range left {
		bindings[i] = forward.Binding(b)
	}
	return forward.Unbind(ctx, broker, bindings)
}

// unbindIntakes removes the bindings of left intakes at the configured RabbitMQ, once no
// scanner serves them. If that fails, the error has the command that does it.
func unbindIntakes(cmd *cobra.Command, cfg *config.Config, topic string, left []topicconfig.LeftIntake) error {
	if len(left) == 0 {
		return nil
	}
	return withBroker(cmd.Context(), cfg, func(ctx context.Context, connection *forward.Connection) error {
		for _, l := range left {
			b, arguments := l.Binding()
			n, err := intake.Unbind(ctx, connection, intake.Abandoned{Exchange: b.Exchange, Queue: b.Queue,
				RoutingKey: b.RoutingKey, Arguments: arguments})
			if err != nil {
				return fmt.Errorf("%w; nothing was unbound from exchange %s, by hand: %s", err, l.Exchange,
					topicconfig.UnbindCommand(l, vhost(cfg)))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "topic %s: queue %s is unbound from exchange %s; messages that lie in it: %d; "+
				"delete it and %s.refused when they are empty\n", topic, l.Queue, l.Exchange, n, l.Queue)
		}
		return nil
	})
}
