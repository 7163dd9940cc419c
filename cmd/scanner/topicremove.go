package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

func topicRemove(s *settings) *cobra.Command {
	var purge bool
	var confirm cli.Confirmation
	cmd := &cobra.Command{
		Use:   "rm TOPIC [--purge] [--yes]",
		Short: "Removes a topic; refuses while it holds tasks unless told to purge them",
		Long: `Removes a topic and its document in Consul. Refuses while the topic holds tasks, unless
--purge is given: then it removes them too. It says what it would remove and asks on a
terminal; elsewhere it needs --yes. Exit code 3: there is no such topic.

"scanner topic undo" restores the document, but not the tasks.

Other tools can write a document under a name that no topic may have. To remove it, give
that name as "scanner topic ls" prints it.`,
		Args: anyName,
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if task.CheckTopic(args[0]) != nil {
				return removeMisnamed(cmd, s, args[0], confirm)
			}
			return removeTopic(cmd, s, args[0], purge, confirm)
		}),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove its tasks")
	confirm.Register(cmd)
	registerAuthor(cmd)
	return cmd
}

// removeTopic removes the document, if Consul holds one, and the topic in Redis.
func removeTopic(cmd *cobra.Command, s *settings, topic string, purge bool, confirm cli.Confirmation) error {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	store, closing, err := connect(cfg, 0, nil)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	if _, inFile := cfg.Topics[topic]; inFile && cfg.Consul.Addr == "" {
		return fmt.Errorf("topic %s is in the configuration file; take it out there first", topic)
	}
	removal := admin.Removal{Topic: store.Topic(topic), Purge: purge}
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
	what := "delete topic " + topic
	if purge || pending == 0 { // otherwise Run keeps the tasks of an interrupted removal
		what += " with " + cli.Counted(pending)
	}
	if err := confirm.Ask(cmd, what); err != nil {
		return err
	}
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
	doc, gone, err := w.docs.UnbindOld(cmd.Context(), topic, w.fleet, w.unbind)
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"topic %s: its history has no other queue bound to exchange %s for its key: nothing to unbind\n", topic,
			doc.Topic.Exchange)
	}
	for _, b := range gone {
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s: queue %s is unbound from exchange %s for key %s; what lies in it stays: "+
			"delete it when it is empty\n", topic, b.Queue, b.Exchange, b.RoutingKey)
	}
	return err
}

// unbind removes bindings at the configured RabbitMQ.
func (w topicWork) unbind(ctx context.Context, left []config.Binding) error {
	rabbit := w.settings.RabbitMQ
	secure, err := rabbit.TLS.Config()
	if err != nil {
		return fmt.Errorf("rabbitmq.tls: %w", err)
	}
	bindings := make([]forward.Binding, len(left))
	for i, b := range left {
		bindings[i] = forward.Binding(b)
	}
	return forward.Unbind(ctx, forward.Config{
		URLs: rabbit.URLs, TLS: secure, Name: "duefleet topic set",
		Advice: func(text string) string { return config.Advice("rabbitmq", text) },
	}, bindings)
}
