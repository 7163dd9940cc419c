package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/task"
)

// optionFlags are the options of a task's message.
type optionFlags struct {
	task.Options
	expiration string
}

func (o *optionFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.RoutingKey, "routing-key", "", "routing key of the message, at most 255 bytes (default the topic's)")
	f.Uint8Var(&o.Priority, "priority", 0, "priority of the message, 0 to 255, for a queue with priorities")
	f.StringVar(&o.expiration, "expiration", "",
		"how long the message may wait in RabbitMQ's queue: 30s, 5m, 2d (default no limit)")
	f.StringVar(&o.CorrelationID, "correlation-id", "", "correlation ID of the message, at most 255 bytes")
	f.StringVar(&o.ReplyTo, "reply-to", "", "the queue for an answer, at most 255 bytes")
}

// read parses the expiration and returns the options. The library checks their ranges.
func (o *optionFlags) read() (task.Options, error) {
	var err error
	if o.Expiration, err = ndjson.ParseExpiration(o.expiration); err != nil {
		return o.Options, cli.UsageError(fmt.Sprintf("--expiration %q: %v", ndjson.Clip(o.expiration), err))
	}
	return o.Options, nil
}
