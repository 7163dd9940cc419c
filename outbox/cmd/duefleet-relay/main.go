// Command duefleet-relay brings the rows of an outbox in PostgreSQL or MariaDB to Redis, as
// outbox.Relay does in an application. "producer relay" runs it.
//
// Exit codes: 0 stopped, 1 failed, 2 wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/producer"
)

const (
	// databaseVar is the environment variable with the database's URL.
	databaseVar = "DUEFLEET_OUTBOX_DATABASE"
	// probeLimit limits how long /readyz waits for a server.
	probeLimit = 700 * time.Millisecond
)

func main() {
	logging.Disable() // the relay logs Redis's errors itself
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal exits at once
	cmd, err := command().ExecuteContextC(ctx)
	os.Exit(cli.Report(os.Stderr, cmd, err, func(error) string { return "" }))
}

type flags struct {
	config, databaseFile, admin string
	poll                        time.Duration
	batch                       int
	migrate                     bool
}

func command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "duefleet-relay",
		Short: "Brings the rows of an outbox in PostgreSQL or MariaDB to Redis",
		Long: `Brings the rows of an outbox in PostgreSQL or MariaDB to Redis, for applications that don't
run a relay themselves. Several may run at once.

The database's URL comes from ` + databaseVar + ` or from --database-file, as in
postgres://user:password@host/name or mariadb://user:password@host/name. A password is never a
flag: other users of the machine could read it.

The log, max_payload and redis sections of --config are used, and their variables
(DUEFLEET_REDIS_ADDRS, ...). /livez, /readyz and /metrics are at --admin-listen. At SIGTERM the
relay finishes the rows that it has begun, and exits with 0.`,
		Example:       `  ` + databaseVar + `=postgres://relay@db/shop duefleet-relay --config config.yaml`,
		Args:          cli.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          cli.Verb(func(cmd *cobra.Command, _ []string) error { return run(cmd, f) }),
	}
	set := cmd.Flags()
	set.StringVar(&f.config, "config", "", "the configuration file")
	set.StringVar(&f.databaseFile, "database-file", "", "a file with the database's URL, in place of "+databaseVar)
	set.StringVar(&f.admin, "admin-listen", "127.0.0.1:9342", "host:port of /livez, /readyz and /metrics")
	set.DurationVar(&f.poll, "poll", 0,
		"the longest time between two looks for rows without a notification (default 1s, 50ms for MariaDB)")
	set.IntVar(&f.batch, "batch", 500, "the largest number of rows in one transaction")
	set.BoolVar(&f.migrate, "migrate", false, "create or upgrade the tables first")
	return cmd
}

// check validates what flags alone can tell.
func (f flags) check(pollGiven bool) error {
	switch {
	case f.poll < 0, f.poll == 0 && pollGiven:
		return cli.UsageError("--poll: must be above 0")
	case f.batch < 1:
		return cli.UsageError("--batch: must be 1 or more")
	}
	return nil
}

func run(cmd *cobra.Command, f flags) error {
	if err := f.check(cmd.Flags().Changed("poll")); err != nil {
		return err
	}
	settings, err := config.LoadConnections(f.config, os.Environ())
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cmd.ErrOrStderr(), settings.Log.Level, settings.Log.Format)
	if err != nil {
		return err
	}
	relay, err := f.open()
	if err != nil {
		return err
	}
	defer relay.DB.Close()
	options, err := connect.Redis(settings.Redis, log)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	if f.migrate {
		if err := relay.Dialect.Migrate(cmd.Context(), relay.DB); err != nil {
			return err
		}
	}
	return f.relay(cmd.Context(), settings, relay, rdb, log)
}

// relay runs the relay until ctx ends, and the admin server until the relay has ended.
func (f flags) relay(ctx context.Context, settings *config.Config, relay outbox.Relay, rdb redis.UniversalClient,
	log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := producer.New(producer.Config{Redis: rdb, Prefix: settings.Redis.Prefix,
		MaxPayload: settings.MaxPayload, MinReplicas: settings.Redis.MinReplicas, Registerer: registry})
	if err != nil {
		return err
	}
	admin, err := telemetry.NewServer(telemetry.ServerConfig{Listen: f.admin, Registry: registry, Log: log,
		Checks: []telemetry.Check{
			{Name: "database", Required: true, Probe: probe(relay.DB.PingContext)},
			{Name: "redis", Required: true, Probe: probe(func(ctx context.Context) error { return rdb.Time(ctx).Err() })},
		}})
	if err == nil {
		err = admin.Listen()
	}
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	log.InfoContext(ctx, "relaying", "admin", admin.Addr())
	relaying, stop := context.WithCancel(ctx)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- admin.Run(serving)
	}()
	relay.Client, relay.Poll, relay.Batch, relay.Registerer, relay.Log = client, f.poll, f.batch, registry, log
	err = relay.Run(relaying)
	end()
	return errors.Join(err, <-served)
}

// probe returns a probe that asks a server.
func probe(ask func(context.Context) error) func() telemetry.Result {
	return func() telemetry.Result {
		ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
		defer cancel()
		if err := ask(ctx); err != nil {
			return telemetry.Result{Detail: err.Error()}
		}
		return telemetry.Result{OK: true}
	}
}
