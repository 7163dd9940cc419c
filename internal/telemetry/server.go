package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownGrace is what requests under way get when Run is told to stop; a
// scrape needs two seconds at worst, a CPU profile is cut off.
const shutdownGrace = 3 * time.Second

// ServerConfig is what the admin server works with.
type ServerConfig struct {
	// Listen is the address, host:port; port 0 takes a free one. Required.
	Listen string
	// Registry is what /metrics exports. Required.
	Registry prometheus.Gatherer
	// Instance names who answers. /readyz?instance=NAME is ready only if NAME is it, so
	// that a check of one that was killed doesn't pass for whoever took its port.
	// Defaults to none: every name will do.
	Instance string
	// Checks are what /readyz asks, in the order it shows them. None: always ready.
	Checks []Check
	// Log is told of requests that went wrong. Required.
	Log *slog.Logger
}

// Server answers /livez, /readyz and /metrics.
type Server struct {
	addr string
	log  *slog.Logger
	http *http.Server
	ln   net.Listener

	grace time.Duration // shutdownGrace, but for tests
}

// NewServer checks the configuration and starts nothing.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Registry == nil || cfg.Log == nil {
		return nil, errors.New("admin server: Registry and Log are required")
	}
	if _, _, err := net.SplitHostPort(cfg.Listen); err != nil {
		return nil, fmt.Errorf("admin.listen %q: must be host:port, as in 127.0.0.1:9320: %w", cfg.Listen, err)
	}
	h, err := newHealth(cfg.Instance, cfg.Checks)
	if err != nil {
		return nil, err
	}
	return &Server{addr: cfg.Listen, log: cfg.Log, http: httpServer(cfg, h), grace: shutdownGrace}, nil
}

// Listen binds the address, so that a start with a port that is taken fails
// early and says what to do. Calling it is optional: Run does it otherwise.
func (s *Server) Listen() error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("admin.listen %s is taken, perhaps by another scanner: stop that one, or give this one "+
			"an address of its own with admin.listen or DUEFLEET_ADMIN_LISTEN: %w", s.addr, err)
	}
	if err != nil {
		return fmt.Errorf("admin.listen %s: %w", s.addr, err)
	}
	s.ln = ln
	return nil
}

// Addr is the address bound, with the port that was taken for 0; before Listen
// it is the one configured.
func (s *Server) Addr() string {
	if s.ln == nil {
		return s.addr
	}
	return s.ln.Addr().String()
}

// Run serves until ctx is done, then lets the requests under way finish for up
// to 3 s, cuts off the rest and returns nil. It returns an error only if the
// address cannot be bound or the listener breaks.
func (s *Server) Run(ctx context.Context) error {
	if s.ln == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	broken := make(chan error, 1)
	go func() { broken <- s.http.Serve(s.ln) }()
	select {
	case err := <-broken:
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.log.WarnContext(grace, "admin requests cut off", "after", s.grace, "error", err)
		_ = s.http.Close() // nothing is left to be done about it
	}
	if err := <-broken; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	}
	return nil
}

func httpServer(cfg ServerConfig, h *health) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", serveLive)
	mux.HandleFunc("GET /readyz", h.serveReady)
	mux.Handle("GET /metrics", newScrapes(promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(cfg.Log.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
}
