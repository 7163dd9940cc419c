package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// printLeftBinding prints the bindings that a change of declare.queue leaves at the
// broker. Scanners bind the new queue but don't unbind the old one, so each task arrives
// in both.
func printLeftBinding(out io.Writer, before, after config.Document) {
	if before.Err != nil || after.Err != nil {
		return
	}
	for _, b := range config.LeftBindings([]config.Topic{before.Topic}, after.Topic) {
		fmt.Fprintf(out, "topic %s: queue %s stays bound to exchange %s for key %s, so that each task arrives in both "+
			"queues; once scanners have applied this, unbind it: "+
			"scanner topic set %s --unbind-old\n", after.Name, b.Queue, b.Exchange, b.RoutingKey, after.Name)
	}
}

// unbindOld removes the bindings that earlier documents of a topic left. It fails unless
// all live scanners have applied the current document. A scanner that hasn't could bind
// the old queue again, and without any the new queue may not be bound yet.
func unbindOld(cmd *cobra.Command, s *settings, c topicdocs.Documents, topic string) error {
	h, doc, err := c.History(cmd.Context(), topic)
	switch {
	case err != nil:
		return fmt.Errorf("topic %s: the queues that were declared before can't be read: %w", topic, err)
	case doc.Index == 0:
		return topicdocs.NoDocumentError(topic)
	case doc.Err != nil:
		return fmt.Errorf("topic %s: its document has mistakes, nothing was unbound: %w", topic, doc.Err)
	}
	left := doctor.LeftBindings(h, doc.Topic)
	if len(left) == 0 {
		_, err := fmt.Fprintf(cmd.OutOrStdout(),
			"topic %s: its history has no other queue bound to exchange %s for its key: nothing to unbind\n", topic,
			doc.Topic.Exchange)
		return err
	}
	said, err := verdict{}.ask(cmd.Context(), s, doc)
	if err != nil {
		return fmt.Errorf("topic %s: nothing was unbound, because it isn't known whether scanners apply the document: %w",
			topic, err)
	}
	if !said.Everywhere() {
		return fmt.Errorf("topic %s: nothing was unbound, because not all scanners apply the document: %s; then try "+
			"again: scanner topic set %s --unbind-old", topic, said.Text(), topic)
	}
	if err := unbind(cmd.Context(), s, left); err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	for _, b := range left {
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s: queue %s is unbound from exchange %s for key %s; what lies in it stays: "+
			"delete it when it is empty\n", topic, b.Queue, b.Exchange, b.RoutingKey)
	}
	return nil
}

func unbind(ctx context.Context, s *settings, left []config.Binding) error {
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	secure, err := cfg.RabbitMQ.TLS.Config()
	if err != nil {
		return fmt.Errorf("rabbitmq.tls: %w", err)
	}
	bindings := make([]forward.Binding, len(left))
	for i, b := range left {
		bindings[i] = forward.Binding(b)
	}
	return forward.Unbind(ctx, forward.Config{
		URLs: cfg.RabbitMQ.URLs, TLS: secure, Name: "duefleet topic set",
		Advice: func(text string) string { return config.Advice("rabbitmq", text) },
	}, bindings)
}
