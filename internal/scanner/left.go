package scanner

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// warnLeft logs the intake that a topic had before its new document, if no topic has its queue
// now. s.mu is held.
func (s *Scanner) warnLeft(ctx context.Context, topic string, before config.Topic) {
	after := s.topics[topic].topic.inForce.Settings()
	if !before.TakesIn() || after.TakesIn() && after.Intake.Queue == before.Intake.Queue {
		return
	}
	now := make(map[string]config.Topic, len(s.topics))
	for name, v := range s.topics {
		now[name] = *v.topic.inForce.Settings()
	}
	for _, l := range topicconfig.LeftIntakes([]config.Topic{before}, now) {
		s.log.WarnContext(ctx, "the topic's new document leaves an intake", "topic", topic, "left", topicconfig.LeftText(l),
			"advice", "let its publishers stop first, then unbind it: "+topicconfig.UnbindCommand(l, s.vhost()))
	}
}

// vhost returns the vhost of the first URL of RabbitMQ, for commands.
func (s *Scanner) vhost() string {
	for _, url := range s.cfg.Settings.RabbitMQ.URLs {
		if uri, err := amqp.ParseURI(url); err == nil {
			return uri.Vhost
		}
	}
	return "VHOST"
}
