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
	format cli.FormatFlag
	topic  string
	view   statusView
	judged bool
}

func statusCommand(s *settings) *cobra.Command {
	f := statusFlags{format: cli.NewFormatFlag(cli.Table)}
	cmd := &cobra.Command{
		Use:   "status [TOPIC] --config config.yaml [--shards | --all | --problem KIND] [--exit-code]",
		Short: "Shows topics, their shards, and the members of the fleet",
		Long: `Shows topics, their shards, and the members of the fleet.

It prints up to 20 topics in full. If there are more, it prints one line for each topic
that needs attention, 20 at most, and the sums of the others. Broken topics come first,
then degraded ones. They are sorted by the oldest due task, then by the backlog. -o json
has all topics.`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return s.withStore(func(store *shard.Store) error { return f.print(cmd, store) })
		}),
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "only this topic; the same as TOPIC")
	cmd.Flags().BoolVar(&f.view.shards, "shards", false, "show each topic in full, and each shard, not only the sums")
	cmd.Flags().BoolVar(&f.view.all, "all", false, "show every topic, one line each, the worst first")
	cmd.Flags().StringVar((*string)(&f.view.problem), "problem", "",
		"show the topics with a problem of this `KIND`, one line each, such as tasks_parked")
	for _, other := range []string{"all", "problem"} {
		cmd.MarkFlagsMutuallyExclusive("shards", other)
		cmd.MarkFlagsMutuallyExclusive("topic", other)
	}
	cmd.MarkFlagsMutuallyExclusive("all", "problem")
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
	kind := f.view.problem
	chosen := having(status.Topics, kind)
	if kind != "" && len(chosen) == 0 && kind.Advice() == "" {
		return cli.UsageError(fmt.Sprintf("--problem %s: there is no such kind; docs/alerts.md#problems lists them", kind))
	}
	if f.format.Format == cli.JSON {
		if kind != "" {
			status.Topics = chosen
		}
		err = cli.PrintJSON(cmd.OutOrStdout(), status, "  ")
	} else {
		err = f.view.print(cmd.OutOrStdout(), status, time.Now())
	}
	if err == nil && f.judged && status.Status != problem.Healthy {
		err = fmt.Errorf("%w: %s", cli.ErrUnhealthy, strings.Join(status.Reasons(), "; "))
	}
	return err
}
