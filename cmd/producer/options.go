package main

import (
	"errors"
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

// ruleFlags are the flags of a recurring task's rule.
type ruleFlags struct {
	task.Recurrence
	every, until string
}

func (r *ruleFlags) register(f *pflag.FlagSet) {
	f.StringVar(&r.every, "every", "", "the task recurs, and its runs are this far apart: 30s, 1h, 7d; a day is 24 hours")
	f.StringVar(&r.Cron, "cron", "", `the task recurs at these dates: minute, hour, day, month and day of week, `+
		`as in "0 9 1 * *"; needs --zone`)
	f.StringVar(&r.Zone, "zone", "", "the zone of --cron, such as Europe/Berlin or UTC")
	f.StringVar(&r.until, "until", "", "the latest time of a run: RFC 3339, or Unix milliseconds (default no end)")
	f.IntVar(&r.Runs, "runs", 0, "how many runs there are; 0 is no limit")
	f.BoolVar(&r.Each, "each", false, "make runs that were missed follow one another (default one run for all of them)")
}

// read returns the rule, nil without one. The library checks its values.
func (r *ruleFlags) read(f *pflag.FlagSet) (*task.Recurrence, error) {
	if !f.Changed("every") && !f.Changed("cron") {
		for _, name := range []string{"zone", "until", "runs", "each"} {
			if f.Changed(name) {
				return nil, cli.UsageError(fmt.Sprintf("--%s goes with --every or --cron", name))
			}
		}
		return nil, nil
	}
	texts := map[string]string{}
	for name, text := range map[string]string{"every": r.every, "until": r.until} {
		if f.Changed(name) {
			texts[name] = text
		}
	}
	rule, err := ndjson.ParseRule(r.Recurrence, texts)
	var wrong *ndjson.FieldError
	if errors.As(err, &wrong) {
		return nil, cli.UsageError(fmt.Sprintf("--%s %q: %v", wrong.Field, ndjson.Clip(texts[wrong.Field]), wrong.Err))
	}
	return rule, err
}
