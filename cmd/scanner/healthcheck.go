package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// defaultHealthTimeout is below the 3 s that most container engines allow for a check.
const defaultHealthTimeout = 2 * time.Second

func healthcheckCommand(s *settings) *cobra.Command {
	var live bool
	timeout := defaultHealthTimeout
	cmd := &cobra.Command{
		Use:   "healthcheck --config config.yaml",
		Short: "Asks the scanner at admin.listen whether it is ready",
		Long: `Asks the scanner at admin.listen of the same configuration whether it is ready.
The exit code is 0 if it is ready. It is 1, with the reason, if the scanner isn't
ready or doesn't answer. Meant for container images without a shell and curl.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.connections()
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return telemetry.Ask(ctx, cfg.Admin.Listen, path)
		}),
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the scanner runs and answers, not whether it is ready")
	cli.DurationVar(cmd.Flags(), &timeout, "timeout", timeout, "how long to wait for an answer")
	return cmd
}
