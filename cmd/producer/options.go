package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
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
	if o.Expiration, err = parseExpiration(o.expiration); err != nil {
		return o.Options, cli.UsageError(fmt.Sprintf("--expiration %q: %v", clip(o.expiration), err))
	}
	return o.Options, nil
}

// parseExpiration parses a duration as duetime.Span does; an empty text is 0. It refuses an
// explicit 0, which could be mistaken for "at once".
func parseExpiration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := duetime.Span(s)
	if err == nil && d == 0 {
		err = errors.New("must be 1ms or more")
	}
	return d, err
}

// options converts the line's fields for the message's options.
func (f *taskLine) options() (o task.Options, err error) {
	if p := f.Priority.value; p < 0 || p > 255 {
		return o, &task.RuleError{Field: "priority", Rule: "must be 0 to 255", Got: fmt.Sprint(p)}
	}
	if o.Expiration, err = parseExpiration(f.Expiration.value); err != nil {
		return o, inField("expiration", err)
	}
	o.RoutingKey, o.CorrelationID, o.ReplyTo = f.RoutingKey.value, f.CorrelationID.value, f.ReplyTo.value
	o.Priority = uint8(f.Priority.value) //nolint:gosec // 0 to 255
	return o, nil
}

// optionsOutput holds the options that get prints: those that the task has.
type optionsOutput struct {
	RoutingKey    string `json:"routing_key,omitempty"`
	Priority      uint8  `json:"priority,omitempty"`
	Expiration    string `json:"expiration,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	ReplyTo       string `json:"reply_to,omitempty"`
}

func newOptionsOutput(o task.Options) optionsOutput {
	out := optionsOutput{RoutingKey: o.RoutingKey, Priority: o.Priority, CorrelationID: o.CorrelationID,
		ReplyTo: o.ReplyTo}
	if o.Expiration > 0 {
		out.Expiration = o.Expiration.String()
	}
	return out
}
