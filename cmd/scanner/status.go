package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
)

// statusFlags are the flags of scanner status.
type statusFlags struct {
	format         cli.FormatFlag
	topic          string
	shards, judged bool
}

func statusCommand(s *settings) *cobra.Command {
	f := statusFlags{format: cli.NewFormatFlag(cli.Table)}
	cmd := &cobra.Command{
		Use:   "status [TOPIC] --config config.yaml [--shards] [--exit-code]",
		Short: "Shows topics, their shards, and the members of the fleet",
		Args:  cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return s.withStore(func(store *shard.Store) error { return f.print(cmd, store) })
		}),
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "only this topic; the same as TOPIC")
	cmd.Flags().BoolVar(&f.shards, "shards", false, "also show each shard, not only the sums")
	cmd.Flags().BoolVar(&f.judged, "exit-code", false,
		"exit with 4 unless everything is healthy, and print the reasons on standard error")
	cmd.Flags().VarP(&f.format, "output", "o", "how to print")
	return cmd
}

// print shows the fleet once.
func (f *statusFlags) print(cmd *cobra.Command, store *shard.Store) error {
	status, err := admin.ReadStatus(cmd.Context(), store, f.topic)
	if err != nil {
		return err
	}
	if f.format.Format == cli.JSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), status, "  ")
	} else {
		err = printStatus(cmd.OutOrStdout(), status, f.shards, time.Now())
	}
	if err == nil && f.judged && status.Status != problem.Healthy {
		err = fmt.Errorf("%w: %s", cli.ErrUnhealthy, strings.Join(status.Reasons(), "; "))
	}
	return err
}
