package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// settings holds the path of the configuration file, "" if --config isn't given.
type settings struct{ path string }

func (s *settings) load() (*config.Config, error) { return config.Load(s.path, os.Environ()) }

// connections loads only the settings that are needed to reach the servers.
func (s *settings) connections() (*config.Config, error) {
	return config.LoadConnections(s.path, os.Environ())
}

// open returns a client of the configured Redis.
func (s *settings) open() (redis.UniversalClient, *shard.Store, error) {
	cfg, err := s.connections()
	if err != nil {
		return nil, nil, err
	}
	return connect(cfg, nil)
}

// InForce implements topicdocs.Fleet.
func (s *settings) InForce(ctx context.Context, topic string) ([]byte, error) {
	rdb, store, err := s.open()
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	return store.Topic(topic).Document(ctx)
}

// Older implements topicdocs.Fleet.
func (s *settings) Older(ctx context.Context, format int) (now time.Time, names []string, err error) {
	rdb, store, err := s.open()
	if err != nil {
		return now, nil, err
	}
	defer rdb.Close()
	return operate.Older(ctx, store, format)
}

// connect returns a client of the configured Redis. Log, which may be nil, receives
// messages about files that change, such as certificates.
func connect(cfg *config.Config, log *slog.Logger) (redis.UniversalClient, *shard.Store, error) {
	return connectWithin(cfg, 0, log)
}

// connectWithin is connect with a limit for writing a request, and the same limit for
// reading an answer. 0 means go-redis's defaults.
func connectWithin(cfg *config.Config, limit time.Duration, log *slog.Logger) (redis.UniversalClient, *shard.Store,
	error) {
	options, err := cfg.Redis.Options(log)
	if err != nil {
		return nil, nil, err
	}
	options.ContextTimeoutEnabled = true
	options.ReadTimeout, options.WriteTimeout = limit, limit
	rdb := redis.NewUniversalClient(options)
	store, err := shard.New(rdb, cfg.Redis.Prefix)
	return rdb, store, err
}

// movingLimit limits a request of a shard's mover, and its answer. Each holds tasks of up
// to 17 MiB, so 300 KB/s are enough. An export takes no longer than that.
const movingLimit = time.Minute

// memberRedis holds a member's clients of Redis.
type memberRedis struct {
	store, moving *shard.Store
	clients       []redis.UniversalClient
}

// connectMember makes the clients of a member. The client for moving tasks connects only
// when the shard count changes.
func connectMember(cfg *config.Config, log *slog.Logger) (*memberRedis, error) {
	r := &memberRedis{}
	rdb, store, err := connect(cfg, log)
	if err != nil {
		return nil, err
	}
	r.clients, r.store = append(r.clients, rdb), store
	if rdb, r.moving, err = connectWithin(cfg, movingLimit, log); err == nil {
		r.clients = append(r.clients, rdb)
		err = errors.Join(store.AwaitReplicas(cfg.Redis.MinReplicas), r.moving.AwaitReplicas(cfg.Redis.MinReplicas))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *memberRedis) close() {
	for _, rdb := range r.clients {
		_ = rdb.Close()
	}
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
	servers, err := connectMember(cfg, log)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range cfg.Exposed() {
		log.WarnContext(ctx, "secret file can be read by every user of this machine", "file", path, "mend",
			"chmod o-rwx "+path)
	}
	build := cli.ReadBuild("scanner")
	sc := scanner.Config{
		Settings: cfg, Store: servers.store, Moving: servers.moving, Instance: scanner.Instance(), Version: build.Version,
		Commit: build.Commit, Log: log,
	}
	reread, err := chooseSource(s, cfg, log, &sc)
	if err != nil {
		servers.close()
		return nil, nil, err
	}
	ctx, unwatch := context.WithCancel(ctx)
	done = func() { unwatch(); servers.close() }
	go hangup{settings: s, running: cfg, reread: reread, log: log}.serve(ctx, hangups)
	if member, err = scanner.New(sc); err != nil {
		done()
		return nil, nil, err
	}
	return member, done, nil
}

// chooseSource sets the source of the topics: Consul if it is configured, else the file.
// A send to reread makes the file source read the file again; reread is nil with Consul.
func chooseSource(s *settings, cfg *config.Config, log *slog.Logger, sc *scanner.Config) (reread chan<- struct{},
	err error) {
	if cfg.Consul.Addr != "" {
		client, err := topicdocs.Open(cfg.Consul, log)
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
	sc.Source, sc.SourceName = config.NewFile(s.path, reload), config.FileSource
	return reload, nil
}
