package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// verifyExchange is where the topic's messages go.
type verifyExchange struct {
	name string
	// kind is the exchange's type, "" if the settings don't say it.
	kind string
	// queueType is the type for verify's queue.
	queueType string
}

// findExchange reads the topic's settings, unless the user named the exchange. An error says
// why the topic can't be verified now, and what to do.
func findExchange(ctx context.Context, store *shard.Store, prefix string, flags *verifyFlags) (verifyExchange, error) {
	e := verifyExchange{name: flags.exchange, queueType: "quorum"}
	topic := store.Topic(flags.topic)
	if _, err := topic.Placement(ctx); err != nil {
		return e, err
	}
	if flags.exchange != "" {
		return e, nil // a producer's user in Redis may not read the rest
	}
	doc, err := topic.Document(ctx)
	switch {
	case err != nil && strings.Contains(err.Error(), "NOPERM"):
		return e, advisedError{err.Error() + "; take a user with the rights of deploy/redis/operator.acl, or give " +
			"--exchange with the topic's exchange"}
	case err != nil:
		return e, err
	case doc == nil:
		return e, fmt.Errorf("topic %s has no settings in Redis; give --exchange", flags.topic)
	}
	if err := someScanner(ctx, store, prefix); err != nil {
		return e, err
	}
	settings, err := config.ParseTopic(flags.topic, doc)
	if err != nil {
		return e, fmt.Errorf("settings of topic %s: %w", flags.topic, err)
	}
	e.name = settings.Exchange
	if d := settings.Declare; d != nil {
		e.kind, e.queueType = d.Type, d.QueueType
	}
	return e, suits(settings, flags)
}

// suits returns an error if the topic's settings keep tasks from being delivered in time.
func suits(settings config.Topic, flags *verifyFlags) error {
	if ends := settings.PauseEnds(); settings.Paused && (ends.IsZero() || ends.After(time.Now())) {
		return fmt.Errorf("topic %s is paused; scanner topic resume %s", flags.topic, flags.topic)
	}
	if settings.Rate > 0 && flags.rate > settings.Rate {
		return fmt.Errorf("topic %s delivers at most %d tasks per second (its setting rate); give --rate %d or less",
			flags.topic, settings.Rate, settings.Rate)
	}
	return nil
}

// someScanner returns an error if no scanner is alive.
func someScanner(ctx context.Context, store *shard.Store, prefix string) error {
	members, err := balance.Members(ctx, store)
	if err != nil {
		return err
	}
	if len(balance.Live(members)) == 0 {
		return fmt.Errorf("no scanner is alive under the prefix %s; start one: scanner run", prefix)
	}
	return nil
}

// private returns an error if other queues get verify's messages, too.
func (e verifyExchange) private(kind string, shared bool) error {
	switch {
	case shared, e.name == "", kind == "", kind == "direct", kind == "topic":
		return nil
	}
	return fmt.Errorf("exchange %q is of type %s: the queues of applications would get the tasks of verify, too; "+
		"use a topic with a direct exchange (scanner topic create), or give --shared", e.name, kind)
}

// verifyOptions returns the options that send a task to verify's queue alone.
func verifyOptions(queue string) task.Options { return task.Options{RoutingKey: queue} }
