package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/livepage"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// The bounds of --interval, and its default.
const (
	leastInterval   = 200 * time.Millisecond
	mostInterval    = time.Minute
	defaultInterval = time.Second
)

// statusFlags are the flags of scanner status.
type statusFlags struct {
	format                  cli.FormatFlag
	topic                   string
	shards, judged, watched bool
	every                   time.Duration
}

func statusCommand(s *settings) *cobra.Command {
	f := statusFlags{format: cli.NewFormatFlag(cli.Table)}
	cmd := &cobra.Command{
		Use:   "status [TOPIC] --config config.yaml [--shards] [--exit-code | --watch]",
		Short: "Shows topics, their shards, and the members of the fleet",
		Args:  cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if f.watched {
				return f.watch(cmd, s)
			}
			return s.withStore(func(store *shard.Store) error { return f.print(cmd, store) })
		}),
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "only this topic; the same as TOPIC")
	cmd.Flags().BoolVar(&f.shards, "shards", false, "also show each shard, not only the sums")
	cmd.Flags().BoolVar(&f.judged, "exit-code", false,
		"exit with 4 unless everything is healthy, and print the reasons on standard error")
	cmd.Flags().BoolVar(&f.watched, "watch", false, "keep it on the terminal, up to date, until q or Ctrl-C")
	cli.DurationVar(cmd.Flags(), &f.every, "interval", defaultInterval,
		"time between two readings with --watch, 200ms to 1m")
	cmd.Flags().VarP(&f.format, "output", "o", "how to print")
	cmd.MarkFlagsMutuallyExclusive("watch", "exit-code")
	cmd.MarkFlagsMutuallyExclusive("watch", "output")
	return cmd
}

// check refuses an interval that is out of range or given without --watch.
func (f *statusFlags) check(cmd *cobra.Command) error {
	if f.every < leastInterval || f.every > mostInterval {
		return cli.UsageError(fmt.Sprintf("--interval must be 200ms to 1m; got %s", f.every))
	}
	if cmd.Flags().Changed("interval") && !f.watched {
		return cli.UsageError("--interval is for --watch")
	}
	return nil
}

// print shows the fleet once.
func (f *statusFlags) print(cmd *cobra.Command, store *shard.Store) error {
	status, err := operate.ReadStatus(cmd.Context(), store, f.topic)
	if err != nil {
		return err
	}
	now := time.Now()
	if f.format.Format == cli.JSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), status, "  ")
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(livepage.Lines(status, f.shards, now), "\n"))
	}
	if reasons := status.Reasons(now); err == nil && f.judged && len(reasons) > 0 {
		texts := make([]string, len(reasons))
		for i, r := range reasons {
			texts[i] = r.String()
		}
		err = fmt.Errorf("%w: %s", cli.ErrUnhealthy, strings.Join(texts, "; "))
	}
	return err
}

// watch shows the fleet on the terminal until a key or a signal ends it.
func (f *statusFlags) watch(cmd *cobra.Command, s *settings) error {
	screen, err := livepage.NewScreen(cmd.InOrStdin(), cmd.OutOrStdout())
	if err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error {
		w := livepage.Watch{
			Screen: screen, Read: operate.NewReader(store, f.topic).Read, Every: f.every, Shards: f.shards, Advice: advice,
		}
		return w.Run(cmd.Context())
	})
}
