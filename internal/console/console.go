// Package console serves pages that show a fleet to operators, as `scanner console` does. It
// reads through internal/admin, as the other verbs do. docs/adr/0028 has the reasons for how
// the pages are made.
//
// A screen is a file in templates, a method that returns what it shows, and a line in
// Console.screens.
package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// shutdownGrace is the time for open requests to finish when Run should stop. Streams end at
// once.
const shutdownGrace = time.Second

// readTimeout limits the time to read a request. Streams outlive it.
const readTimeout = 10 * time.Second

// Config configures a Console. Settings, Store, Registerer and Log are required.
type Config struct {
	Settings config.Console
	// Store has the fleet's data.
	Store *shard.Store
	// Doctor examines the fleet, as doctor.Examine does; nil: there is no such screen.
	Doctor func(ctx context.Context) []doctor.Finding
	// Queues asks RabbitMQ about queues, as doctor.AskQueues does; nil: topics' pages say that
	// nobody is asked.
	Queues func(ctx context.Context, names []string) ([]doctor.Queue, error)
	// Documents are the topics' documents in Consul; nil: topics come from a file.
	Documents *topicconfig.Documents
	// File is the path of the configuration file, for messages; "" if there is none.
	File string
	// ReadOnly refuses every action, whatever a user's role is.
	ReadOnly bool
	// Version is shown at the end of each page.
	Version string
	// Registerer registers the metrics, duefleet_console_*.
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Console is a web server for operators.
type Console struct {
	log        *slog.Logger
	listen     string
	version    string
	assets     string
	links      []link
	access     *access
	store      *shard.Store
	documents  *topicconfig.Documents // nil: none
	file       string
	payloads   bool // are shown
	readers    *readers
	reader     *reader // of the fleet
	samples    samples
	depths     *depths
	streams    atomic.Int64
	changes    *changes
	examiner   *examiner // nil: none
	signInForm *template.Template
	handler    http.Handler
	metrics    *metrics
	tls        *tls.Config // nil: no encryption
	ln         net.Listener
}

// New checks the configuration and starts nothing. It refuses an address that other machines
// reach if nobody would have to sign in.
func New(cfg Config) (*Console, error) {
	a, err := newAccess(cfg.Settings, cfg.ReadOnly, cfg.Log)
	if err != nil {
		return nil, err
	}
	c := &Console{log: cfg.Log, listen: cfg.Settings.Listen, version: cfg.Version, access: a,
		store: cfg.Store, documents: cfg.Documents, file: cfg.File, readers: newReaders(), changes: newChanges(),
		payloads: cfg.Settings.ShowPayloads}
	if c.tls, err = connect.ServerTLS("console.tls", cfg.Settings.TLS, cfg.Log); err != nil {
		return nil, err
	}
	if c.metrics, err = newMetrics(cfg.Registerer, func() float64 { return float64(c.streams.Load()) }); err != nil {
		return nil, err
	}
	c.reader = c.fleetReader()
	c.depths = &depths{ask: cfg.Queues, begin: c.changes.begin, kept: map[string]*depth{}}
	if c.signInForm, err = parse("signin.html"); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	if cfg.Doctor != nil {
		c.examiner = &examiner{examine: cfg.Doctor, after: c.reader.expire}
		mux.HandleFunc("POST /doctor", c.examineAgain)
	}
	if c.assets, err = serveAssets(mux); err != nil {
		return nil, err
	}
	for _, s := range c.screens() {
		if s.linked {
			c.links = append(c.links, link{Title: s.title, Path: strings.TrimSuffix(s.path, "{$}")})
		}
		if err := c.route(mux, s); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.routePause(mux), c.routeEdits(mux)); err != nil {
		return nil, err
	}
	for verb := range tasksVerbs() {
		err := c.routeAct(mux, "/tasks/"+string(verb), func(r *http.Request) (plan, error) { return c.tasksPlan(r, verb) })
		if err != nil {
			return nil, err
		}
	}
	for _, verb := range []string{"replay", "purge"} {
		err := c.routeAct(mux, "/parked/"+verb, func(r *http.Request) (plan, error) { return c.parkedPlan(r, verb) })
		if err != nil {
			return nil, err
		}
	}
	mux.HandleFunc("GET "+signInPath, c.showSignIn)
	mux.HandleFunc("POST "+signInPath, c.signIn)
	mux.HandleFunc("POST "+signOutPath, c.signOut)
	c.handler = c.metrics.count(mux, c.protect(mux))
	return c, nil
}

// fleetReader returns the reader of the whole fleet.
func (c *Console) fleetReader() *reader {
	status := &admin.Reader{Store: c.store, OrphansEvery: orphansEvery, OrphansIn: orphansIn}
	return c.readers.reader(readEvery, measured(c.metrics, "fleet", func(ctx context.Context) (content, error) {
		got, err := status.Read(ctx, "")
		return content{Status: got}, err
	}))
}

// Listen binds the address; the error says what to do if it is taken. Call it once, before
// Run.
func (c *Console) Listen(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("console.listen %s is taken: stop what listens there, or set console.listen or "+
			"DUEFLEET_CONSOLE_LISTEN: %w", c.listen, err)
	}
	if err != nil {
		return fmt.Errorf("console.listen %s: %w", c.listen, err)
	}
	c.ln = ln
	if host, _, _ := net.SplitHostPort(c.listen); c.tls == nil && !loopback(host) {
		c.log.WarnContext(ctx, "passwords and tokens travel unencrypted, unless a proxy in front adds TLS: console.tls")
	}
	return nil
}

// Addr returns the bound address, once Listen has returned.
func (c *Console) Addr() string { return c.ln.Addr().String() }

// URL returns the address of the first page, once Listen has returned.
func (c *Console) URL() string {
	if c.tls != nil {
		return "https://" + c.Addr() + "/"
	}
	return "http://" + c.Addr() + "/"
}

// serve serves until the server is shut down or the listener breaks.
func (c *Console) serve(s *http.Server) error {
	if c.tls == nil {
		return s.Serve(c.ln)
	}
	return s.ServeTLS(c.ln, "", "")
}

// Run serves until ctx ends, and returns within two seconds then. If it can't write the end
// of a change into the audit record, it takes five seconds more. It returns an error only if
// the listener breaks.
func (c *Console) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{
		Handler:           c.handler,
		TLSConfig:         c.tls,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // its end ends the streams
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
	}
	var working sync.WaitGroup
	working.Go(func() { c.readers.run(ctx) })
	working.Go(func() { c.sample(ctx) })
	working.Go(func() { c.changes.run(ctx) })
	broken := make(chan error, 1)
	go func() { broken <- c.serve(server) }()
	var err error
	select {
	case err = <-broken:
		err = fmt.Errorf("serve %s: %w", c.ln.Addr(), err)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // what is still open is cut off
		}
		if err = <-broken; errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	stop()
	working.Wait()
	return err
}
