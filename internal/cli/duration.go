package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/duetime"
)

// DurationVar defines a flag with a duration as duetime.Span parses it, in days too.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationFlag)(p), name, usage)
}

type durationFlag time.Duration

// Set implements pflag.Value.
func (d *durationFlag) Set(text string) error {
	parsed, err := duetime.Span(text)
	*d = durationFlag(parsed)
	return err
}

// String implements pflag.Value.
func (d *durationFlag) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *durationFlag) Type() string { return "duration" }
