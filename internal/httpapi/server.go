// Package httpapi serves the producer library over HTTP: any program schedules, reads, moves
// and cancels tasks with a token. Each answer says whether the request took effect.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// Tasks is the part of *producer.Client that the server calls.
type Tasks interface {
	Schedule(ctx context.Context, r producer.Request) (due time.Time, err error)
	Reschedule(ctx context.Context, topic, id string, when producer.When) (due time.Time, err error)
	Cancel(ctx context.Context, topic, id string) error
	Get(ctx context.Context, topic, id string) (producer.Stored, error)
}

// The limits of a connection. A client that is slower loses it.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
	// memoryTimeout is how long a body waits for its share of the memory of all bodies.
	memoryTimeout = 10 * time.Second
	// maxHeaderBytes has room for a task's headers, its ID with each byte escaped, and
	// what clients and proxies add.
	maxHeaderBytes = task.MaxHeaderBytes + 32<<10
	// maxStreams is the number of requests at a time on one connection of HTTP/2.
	maxStreams = 100
)

// stopGrace is how long requests may take after Run's context ended.
const stopGrace = 20 * time.Second

// Config configures a Server.
type Config struct {
	// Listen is the address, host:port; port 0 takes a free one. Without Tokens the host
	// must be a loopback address. Required.
	Listen string
	// Tasks carries out requests. It must limit how long a call takes. Required.
	Tasks Tasks
	// Batches works on the tasks of batches. Required.
	Batches Batches
	// MaxPayload is the largest payload, in bytes. Required.
	MaxPayload int
	// Tokens is the file of the clients' tokens: YAML with a list "clients", each with name,
	// sha256, topics, verbs and rate. See docs/http.md. Defaults to none: every local program may
	// do everything.
	Tokens string
	// TLS has the server's certificate. Defaults to nil: no encryption.
	TLS *tls.Config
	// MaxConnections is the number of connections at a time; further ones wait. Defaults
	// to 1000.
	MaxConnections int
	// MaxBodyBytes limits the memory of all bodies that are being received, in bytes.
	// Further requests wait. Defaults to 64 MiB, and is at least MaxPayload.
	MaxBodyBytes int64
	// Registerer registers the metrics, duefleet_http_*. Required.
	Registerer prometheus.Registerer
	// Log gets one line for each request at the level debug, and failures. It never gets a
	// token or a payload. Required.
	Log *slog.Logger
}

// Server answers HTTP requests for tasks.
type Server struct {
	cfg   Config
	http  *http.Server
	ln    net.Listener
	grace time.Duration // stopGrace; shorter in tests
	// active is the number of requests that are being answered.
	active *atomic.Int64
}

// New checks the configuration and reads the tokens. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Tasks == nil || cfg.Batches == nil || cfg.Registerer == nil || cfg.Log == nil || cfg.MaxPayload < 1 {
		return nil, errors.New("http server: Tasks, Batches, MaxPayload, Registerer and Log are required")
	}
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %q: must be host:port, as in 127.0.0.1:9340: %w", cfg.Listen, err)
	}
	if cfg.Tokens == "" && !Loopback(host) {
		return nil, fmt.Errorf("listen %q: other machines can reach it, so a file of tokens is needed", cfg.Listen)
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 1000
	}
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = 64 << 20
	}
	cfg.MaxBodyBytes = max(cfg.MaxBodyBytes, int64(cfg.MaxPayload))
	h, err := newHandler(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, grace: stopGrace, active: &h.active, http: &http.Server{
		Handler:           h,
		TLSConfig:         cfg.TLS,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}}
	s.http.RegisterOnShutdown(h.stop)
	return s, nil
}

// Listen binds the address, so that a start fails early if the port is taken. Calling it
// is optional, because Run does it otherwise.
func (s *Server) Listen() error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.ln = newLimited(ln, s.cfg.MaxConnections)
	return nil
}

// Addr returns the bound address, with the real port if the configured one is 0. Before
// Listen it returns the configured address.
func (s *Server) Addr() string {
	if s.ln == nil {
		return s.cfg.Listen
	}
	return s.ln.Addr().String()
}

// Run serves until ctx ends. Then it accepts no further connection, and answers the
// requests that it has begun. After 20 s it cuts off the rest. It returns an error only if
// it can't bind the address or the listener breaks.
func (s *Server) Run(ctx context.Context) error {
	if s.ln == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	broken := make(chan error, 1)
	go func() { broken <- s.serve() }()
	select {
	case err := <-broken:
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.cfg.Log.WarnContext(grace, "requests cut off", "after", s.grace, "error", err)
		_ = s.http.Close() // no use for the error
	}
	if err := <-broken; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	}
	return nil
}

func (s *Server) serve() error {
	if s.cfg.TLS == nil {
		return s.http.Serve(s.ln)
	}
	return s.http.ServeTLS(s.ln, "", "")
}

// Loopback reports whether only programs of this machine reach a host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
