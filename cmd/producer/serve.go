package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/httpapi"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/producer"
)

// maxTimeout leaves time for the answer, within the minute that the server has for it.
const maxTimeout = 50 * time.Second

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, admin  string
	tokens         string
	cert, key      string
	timeout        time.Duration
	maxConnections int
}

func serveCommand(conn *connection) *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serves HTTP: any program schedules, with a token and an answer",
		Long: `Serves HTTP: PUT, GET, PATCH and DELETE on /v1/topics/TOPIC/tasks/ID schedule, read,
move and cancel a task. POST on /v1/topics/TOPIC/tasks takes lines as pipe does, and
answers each. Each answer says whether the request took effect.

Without --tokens only this machine can reach the server. With --tokens each request needs
a token of the file. The file and the certificate are read again when they change.

The log, max_payload and redis sections of --config are used. /livez, /readyz and /metrics
are at --admin-listen. At SIGTERM the server answers the requests that it has begun, for up
to 20 s, and exits with 0.`,
		Example: `  producer serve --config config.yaml --listen :9340 --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key
  curl -X PUT --json '{"order":1}' 'http://127.0.0.1:9340/v1/topics/orders/tasks/o-1?in=30m'`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return serve(cmd, conn, flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.listen, "listen", "127.0.0.1:9340", "host:port of the server")
	f.StringVar(&flags.admin, "admin-listen", "127.0.0.1:9341", "host:port of /livez, /readyz and /metrics")
	f.StringVar(&flags.tokens, "tokens", "",
		"file of the clients' tokens; needed unless --listen is a loopback address")
	f.StringVar(&flags.cert, "tls-cert", "", "the server's PEM certificate (default no encryption)")
	f.StringVar(&flags.key, "tls-key", "", "its PEM key")
	f.DurationVar(&flags.timeout, "timeout", 5*time.Second, "how long Redis may take for a request, at most 50s")
	f.IntVar(&flags.maxConnections, "max-connections", 1000, "connections at a time; further ones wait")
	return cmd
}

// check validates what flags alone can tell.
func (f serveFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	switch {
	case err != nil:
		return cli.UsageError(fmt.Sprintf("--listen %q: must be host:port", f.listen))
	case f.tokens == "" && !httpapi.Loopback(host):
		return cli.UsageError(fmt.Sprintf("--listen %s: other machines can reach it, so --tokens is needed", f.listen))
	case (f.cert == "") != (f.key == ""):
		return cli.UsageError("--tls-cert and --tls-key: both or none must be given")
	case f.timeout <= 0 || f.timeout > maxTimeout:
		return cli.UsageError(fmt.Sprintf("--timeout %s: must be above 0 and at most %s, because an answer has a minute",
			f.timeout, maxTimeout))
	case f.maxConnections < 1:
		return cli.UsageError("--max-connections: must be 1 or more")
	}
	return nil
}

func serve(cmd *cobra.Command, conn *connection, flags serveFlags) error {
	if err := flags.check(); err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cmd.ErrOrStderr(), conn.settings.Log.Level, conn.settings.Log.Format)
	if err != nil {
		return err
	}
	cli.LeastHeap()
	registry := telemetry.NewRegistry()
	server := conn.server(cmd)
	options, err := connect.Redis(server, log)
	if err != nil {
		return err
	}
	client, err := producer.New(producer.Config{
		Options: options, Prefix: server.Prefix, MaxPayload: conn.maxPayload, MinReplicas: server.MinReplicas,
		Timeout: flags.timeout, Registerer: registry,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	secure, err := connect.ServerTLS("serve.tls", config.ServerTLS{CertFile: flags.cert, KeyFile: flags.key}, log)
	if err != nil {
		return err
	}
	api, err := httpapi.New(httpapi.Config{
		Listen: flags.listen, Tasks: client, Batches: client, MaxPayload: conn.maxPayload, Tokens: flags.tokens, TLS: secure,
		MaxConnections: flags.maxConnections, Registerer: registry, Log: log,
	})
	if err != nil {
		return err
	}
	probe, err := newRedisProbe(server, log)
	if err != nil {
		return err
	}
	defer probe.rdb.Close()
	admin, err := telemetry.NewServer(telemetry.ServerConfig{Listen: flags.admin, Setting: "--admin-listen",
		Registry: registry, Log: log, Checks: []telemetry.Check{
			{Name: "serving", Required: true, Probe: atWork(cmd.Context())},
			{Name: "redis", Required: true, Probe: probe.result},
		}})
	if err = errors.Join(err, flags.measure(registry, server, secure)); err == nil {
		err = errors.Join(api.Listen(), admin.Listen())
	}
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if flags.tokens != "" && secure == nil {
		log.WarnContext(cmd.Context(), "tokens travel unencrypted, unless a proxy in front adds TLS", "listen", api.Addr())
	}
	log.InfoContext(cmd.Context(), "serving", "listen", api.Addr(), "admin", admin.Addr(), "tls", secure != nil,
		"tokens", flags.tokens)
	return runTogether(cmd.Context(), api.Run, admin.Run, probe.run)
}

// measure registers the metrics of the build and of the certificates.
func (f serveFlags) measure(registry prometheus.Registerer, server config.Redis, secure *tls.Config) error {
	var set telemetry.Set
	build := cli.ReadBuild("producer")
	set.AddBuild(telemetry.Build{Version: build.Version, Commit: build.Commit})
	files, err := connect.Certificates(&config.Config{Redis: server})
	if err = errors.Join(err, set.Register(registry)); err != nil {
		return err
	}
	if secure != nil {
		files = append(files, connect.Certificate{Use: "http", File: f.cert,
			Expires: func() time.Time { return firstEnd(secure) }})
	}
	for _, c := range files {
		if err := telemetry.AddCertificate(registry, c.Use, c.File, c.Expires); err != nil {
			return err
		}
	}
	return nil
}

// firstEnd returns when the first of the certificates ends that a server presents now.
func firstEnd(secure *tls.Config) (first time.Time) {
	pair, err := secure.GetCertificate(nil)
	if err != nil {
		return first
	}
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err == nil && (first.IsZero() || cert.NotAfter.Before(first)) {
			first = cert.NotAfter
		}
	}
	return first
}

// atWork returns a probe that fails once the server is stopping, so that nobody sends it further
// requests.
func atWork(ctx context.Context) func() telemetry.Result {
	return func() telemetry.Result {
		if ctx.Err() != nil {
			return telemetry.Result{Detail: "stopping"}
		}
		return telemetry.Result{OK: true, Detail: "at work"}
	}
}

// runTogether runs the server until ctx ends, and the others until the server has ended.
func runTogether(ctx context.Context, server func(context.Context) error, others ...func(context.Context) error) error {
	rest, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	all, failed := errgroup.WithContext(rest)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(failed, stop)
	all.Go(func() error {
		defer end()
		return server(serving)
	})
	for _, run := range others {
		all.Go(func() error { return run(failed) })
	}
	return all.Wait()
}

// probeEvery is the time between two looks at Redis, and the limit of each.
const probeEvery = time.Second

// redisProbe asks Redis for its time, for /readyz.
type redisProbe struct {
	rdb    redis.UniversalClient
	latest atomic.Pointer[telemetry.Result]
}

// newRedisProbe returns a probe with a connection of its own, so that a full pool doesn't
// look like a Redis that is away.
func newRedisProbe(server config.Redis, log *slog.Logger) (*redisProbe, error) {
	options, err := connect.Redis(server, log)
	if err != nil {
		return nil, err
	}
	options.PoolSize, options.ContextTimeoutEnabled = 1, true
	p := &redisProbe{rdb: redis.NewUniversalClient(options)}
	p.latest.Store(&telemetry.Result{Detail: "not asked until now"})
	return p, nil
}

func (p *redisProbe) result() telemetry.Result { return *p.latest.Load() }

// run asks until ctx ends.
func (p *redisProbe) run(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		p.ask(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *redisProbe) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	result := telemetry.Result{OK: true}
	if err := p.rdb.Time(ctx).Err(); err != nil {
		result = telemetry.Result{Detail: err.Error()}
	}
	p.latest.Store(&result)
}
