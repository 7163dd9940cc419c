package verify

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
)

// exchange is where the topic's messages go.
type exchange struct {
	name string
	// kind is the exchange's type, "" if the settings don't say it.
	kind string
	// queueType is the type for the queue of a Test.
	queueType string
}

// findExchange reads the topic's settings, unless the user named the exchange. An error says
// why the topic can't be verified now, and what to do.
func findExchange(ctx context.Context, store *shard.Store, cfg *Config) (exchange, error) {
	e := exchange{name: cfg.Exchange, queueType: "quorum"}
	topic := store.Topic(cfg.Topic)
	if _, err := topic.Placement(ctx); err != nil {
		return e, err
	}
	if cfg.Exchange != "" {
		return e, nil // a producer's user in Redis may not read the rest
	}
	doc, err := store.Registry().Document(ctx, cfg.Topic)
	switch {
	case err != nil && strings.Contains(err.Error(), "NOPERM"):
		return e, AdvisedError(err.Error() + "; take a user with the rights of deploy/redis/operator.acl, or give " +
			"--exchange with the topic's exchange")
	case err != nil:
		return e, err
	case doc == nil:
		return e, fmt.Errorf("topic %s has no settings in Redis; give --exchange", cfg.Topic)
	}
	members, err := balance.Members(ctx, store)
	if err != nil {
		return e, err
	}
	if len(balance.Live(members)) == 0 {
		return e, fmt.Errorf("no scanner is alive under the prefix %s; start one: scanner run", cfg.Prefix)
	}
	settings, err := config.ParseTopic(cfg.Topic, doc)
	if err != nil {
		return e, fmt.Errorf("settings of topic %s: %w", cfg.Topic, err)
	}
	e.name = settings.Exchange
	if d := settings.Declare; d != nil {
		e.kind, e.queueType = d.Type, d.QueueType
	}
	return e, suits(settings, cfg)
}

// suits returns an error if the topic's settings keep tasks from being delivered in time.
func suits(settings config.Topic, cfg *Config) error {
	if ends := settings.PauseEnds(); settings.Paused && (ends.IsZero() || ends.After(time.Now())) {
		return fmt.Errorf("topic %s is paused; scanner topic resume %s", cfg.Topic, cfg.Topic)
	}
	if settings.Rate > 0 && cfg.Rate > settings.Rate {
		return fmt.Errorf("topic %s delivers at most %d tasks per second (its setting rate); give --rate %d or less",
			cfg.Topic, settings.Rate, settings.Rate)
	}
	return nil
}

// otherType finds the type of an exchange in RabbitMQ's refusal to declare it with another one.
// AMQP has no other way to learn it.
var otherType = regexp.MustCompile(`inequivalent arg 'type' .*current is '([^']*)'`)

// check checks that the exchange exists. Unless shared, it must not send the messages of a
// Test to other queues.
func (e exchange) check(conn *amqp.Connection, shared bool) error {
	if e.name == "" {
		return nil
	}
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	defer ch.Close()
	if err := ch.ExchangeDeclarePassive(e.name, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return refused(fmt.Sprintf("check exchange %q", e.name), err)
	}
	kind := amqp.ExchangeDirect
	if err := ch.ExchangeDeclare(e.name, kind, true, false, false, false, nil); err != nil {
		kind = e.kind // the user of RabbitMQ may not declare the exchange
		if found := otherType.FindStringSubmatch(err.Error()); found != nil {
			kind = found[1]
		}
	}
	if !shared && kind != "" && kind != amqp.ExchangeDirect && kind != amqp.ExchangeTopic {
		return fmt.Errorf("exchange %q is of type %s: the queues of applications would get the tasks of verify, too; "+
			"use a topic with a direct exchange (scanner topic create), or give --shared", e.name, kind)
	}
	return nil
}
