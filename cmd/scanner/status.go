package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
)

func asErrors(err error) (config.Errors, bool) {
	var all config.Errors
	ok := errors.As(err, &all)
	return all, ok
}

func statusCommand(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	var topic string
	var shards, judged bool
	cmd := &cobra.Command{
		Use:   "status --config config.yaml [--topic T] [--shards] [--exit-code]",
		Short: "Shows topics, their shards, and the members of the fleet",
		Args:  cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			rdb, store, err := s.open()
			if err != nil {
				return err
			}
			defer rdb.Close()
			status, err := operate.ReadStatus(cmd.Context(), store, topic)
			if err != nil {
				return err
			}
			now := time.Now()
			if format.Format == cli.JSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), status, "  ")
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(statusLines(status, shards, now), "\n"))
			}
			if reasons := status.Reasons(now); err == nil && judged && len(reasons) > 0 {
				err = fmt.Errorf("%w: %s", cli.ErrUnhealthy, strings.Join(reasons, "; "))
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&topic, "topic", "", "this topic alone")
	cmd.Flags().BoolVar(&shards, "shards", false, "each shard too, and not the sums alone")
	cmd.Flags().BoolVar(&judged, "exit-code", false, "exit with 4 unless all is healthy, and say why on standard error")
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}
