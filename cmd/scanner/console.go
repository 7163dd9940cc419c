package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/console"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

func consoleCommand(s *settings) *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "console --config config.yaml [--read-only]",
		Short: "Serves web pages that show the fleet, until SIGTERM or SIGINT",
		Long: `Serves web pages that show the fleet, until SIGTERM or SIGINT, and prints their address.

It listens at console.listen, by default for this machine alone. Beyond that it needs
console.users_file, console.token or console.trust_header, and refuses to start otherwise.
It logs who did what.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return runConsole(s, cmd, readOnly) }),
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "refuse every action, whatever a user's role is")
	return cmd
}

func runConsole(s *settings, cmd *cobra.Command, readOnly bool) error {
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cmd.ErrOrStderr(), cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	store, closing, err := openStore(cfg, 0, log)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	var docs *topicconfig.Documents
	if cfg.Consul.Addr != "" {
		opened, err := topicconfig.Open(cfg.Consul, log)
		if err != nil {
			return err
		}
		docs = &opened
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c, err := console.New(console.Config{Settings: cfg.Console, Store: store, ReadOnly: readOnly, Documents: docs,
		File: s.path, Version: cli.ReadBuild("scanner").Version, Log: log, Registerer: registry,
		Queues: func(ctx context.Context, names []string) ([]doctor.Queue, error) {
			return doctor.AskQueues(ctx, cfg.RabbitMQ, names)
		},
		Doctor: func(ctx context.Context) []doctor.Finding {
			verb := &cobra.Command{}
			verb.SetContext(ctx)
			return examine(verb, s)
		}})
	if err != nil {
		return err
	}
	// It is always ready: while Redis is away, its pages say so.
	health, err := telemetry.NewServer(telemetry.ServerConfig{Listen: cfg.Console.AdminListen,
		Setting: "console.admin_listen", Registry: registry, Log: log})
	if err != nil {
		return err
	}
	if err := errors.Join(c.Listen(cmd.Context()), health.Listen()); err != nil {
		return err
	}
	log.InfoContext(cmd.Context(), "serving", "listen", c.Addr(), "admin", health.Addr())
	fmt.Fprintln(cmd.OutOrStdout(), "console: "+c.URL())
	all, ctx := errgroup.WithContext(cmd.Context())
	all.Go(func() error { return c.Run(ctx) })
	all.Go(func() error { return health.Run(ctx) })
	return all.Wait()
}
