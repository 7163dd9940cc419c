package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/otlp"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/internal/wake"
)

// settings holds the path of the configuration file, "" if --config isn't given.
type settings struct{ path string }

func (s *settings) load() (*config.Config, error) { return config.Load(s.path, os.Environ()) }

// connections loads only the settings that are needed to reach the servers.
func (s *settings) connections() (*config.Config, error) {
	return config.LoadConnections(s.path, os.Environ())
}

// withStore calls work with the fleet's data in the configured Redis.
func (s *settings) withStore(work func(*shard.Store) error) error {
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	store, closing, err := openStore(cfg, 0, nil)
	if err != nil {
		return err
	}
	defer func() { _ = closing() }()
	return work(store)
}

// openStore returns the store in the configured Redis; closing closes its client. Limit is
// for writing a request, and again for reading an answer; 0 means go-redis's defaults.
// Log, which may be nil, receives messages about files that change, such as certificates.
func openStore(cfg *config.Config, limit time.Duration, log *slog.Logger) (store *shard.Store, closing func() error,
	err error) {
	options, err := connect.Redis(cfg.Redis, log)
	if err != nil {
		return nil, nil, err
	}
	options.ReadTimeout, options.WriteTimeout = limit, limit
	// With a listener 20 for each node on up to four cores. Pipelines may use the others, too.
	options.PoolSize, options.PipelinePoolSize = max(16, 4*runtime.GOMAXPROCS(0)), 3
	return shard.Open(nil, options, cfg.Redis.Prefix, 0)
}

// movingLimit limits a request of a shard's mover, and its answer. Each holds tasks of up
// to 17 MiB, so 300 KB/s are enough. An export takes no longer than that.
const movingLimit = time.Minute

// connectMember sets the stores of a member; done closes their clients. The client for
// moving tasks connects only when the shard count changes.
func connectMember(sc *scanner.Config) (done func(), err error) {
	var closings []func() error
	done = func() {
		for _, closing := range closings {
			_ = closing()
		}
	}
	for limit, store := range map[time.Duration]**shard.Store{0: &sc.Store, movingLimit: &sc.Moving} {
		opened, closing, err := openStore(sc.Settings, limit, sc.Log)
		if err == nil {
			closings, *store = append(closings, closing), opened
			err = opened.AwaitReplicas(sc.Settings.Redis.MinReplicas)
		}
		if err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

func runCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "run --config config.yaml",
		Short: "Runs one member of the fleet until SIGTERM or SIGINT",
		Long: `Runs one member of the fleet until SIGTERM or SIGINT. Then it stops claiming, settles
the tasks in flight (for at most shutdown_timeout), releases the rest and exits with 0.
A second signal ends it at once.

SIGHUP re-reads the topics of the file; topics in Consul are always watched. It also logs
each changed setting that needs a restart: servers, redis.prefix, admin.listen and every
other setting outside topics. SIGHUP never ends a scanner.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return runScanner(cmd.Context(), s, cmd)
		}),
	}
}

func runScanner(ctx context.Context, s *settings, cmd *cobra.Command) error {
	cli.LeastHeap()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // by default it would end the program
	defer signal.Stop(hup)
	cfg, err := s.load()
	if err != nil {
		return err
	}
	member, done, err := newMember(ctx, s, cfg, cmd.ErrOrStderr(), hup)
	if err != nil {
		return err
	}
	defer done()
	cli.FewThreads(ctx)
	return member.Run(ctx)
}

// newMember makes a member of the fleet, and starts only the handler of hangups; done
// frees its resources. It contacts no server. The error covers mistakes in the settings
// that loading them doesn't find.
func newMember(ctx context.Context, s *settings, cfg *config.Config, stderr io.Writer,
	hangups <-chan os.Signal) (member *scanner.Scanner, done func(), err error) {
	log, err := telemetry.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return nil, nil, err
	}
	build := cli.ReadBuild("scanner")
	sc := scanner.Config{
		Settings: cfg, Instance: scanner.Instance(), Version: build.Version, Commit: build.Commit, Log: log,
		Beat: wake.NewBeat(),
	}
	disconnect, err := connectMember(&sc)
	if err != nil {
		return nil, nil, err
	}
	flush := traced(ctx, &sc)
	for _, path := range connect.Exposed(cfg) {
		log.WarnContext(ctx, "secret file can be read by every user of this machine", "file", path, "fix",
			"chmod o-rwx "+path)
	}
	reread, err := chooseSource(s, cfg, log, &sc)
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	ctx, unwatch := context.WithCancel(ctx)
	done = func() { unwatch(); disconnect(); flush() }
	go config.Hangup{Path: s.path, Load: s.load, Running: cfg, Reread: reread, Log: log}.Serve(ctx, hangups)
	if member, err = scanner.New(sc); err != nil {
		done()
		return nil, nil, err
	}
	return member, done, nil
}

// traced lets a member make spans, if the environment says so. A value that can't be used
// is logged, and the member delivers without spans. flush exports the last spans.
func traced(ctx context.Context, sc *scanner.Config) (flush func()) {
	p, err := otlp.New(ctx, otlp.Process{Service: "duefleet-scanner", Version: sc.Version, Instance: sc.Instance}, sc.Log)
	if err != nil {
		sc.Log.WarnContext(ctx, "tracing is off", "error", err)
	}
	if p == nil {
		return func() {}
	}
	sc.TracerProvider = p
	return func() { p.Stop(ctx) }
}

// chooseSource sets the source of the topics: Consul if it is configured, else the file.
// A send to reread makes the file source read the file again; reread is nil with Consul.
func chooseSource(s *settings, cfg *config.Config, log *slog.Logger, sc *scanner.Config) (reread chan<- struct{},
	err error) {
	if cfg.Consul.Addr != "" {
		client, err := topicconfig.Open(cfg.Consul, log)
		if err != nil {
			return nil, err
		}
		sc.Source, sc.Register = client, client.Consul
		sc.SourceName = config.ConsulSource(cfg.Consul.Prefix)
		return nil, nil
	}
	if s.path == "" {
		return nil, fmt.Errorf("no topics to serve: name a file with --config, or Consul with DUEFLEET_CONSUL_ADDR")
	}
	reload := make(chan struct{})
	file := config.NewFile(s.path, reload)
	file.Beat = sc.Beat
	sc.Source, sc.SourceName = file, config.FileSource
	return reload, nil
}
