package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownGrace is the time for open requests to finish when Run should stop. A scrape
// needs two seconds at worst; a CPU profile is cut off.
const shutdownGrace = 3 * time.Second

// ServerConfig configures the admin server.
type ServerConfig struct {
	// Listen is the address, host:port; port 0 takes a free one. Required.
	Listen string
	// Setting is the configuration key or the flag of Listen, for errors. Defaults to admin.listen.
	Setting string
	// Registry provides the metrics for /metrics. Required.
	Registry prometheus.Gatherer
	// Instance is this scanner's name. /readyz?instance=NAME is ready only if NAME is
	// Instance. So a check of a killed scanner fails although another one took its port.
	// Defaults to "", which accepts every name.
	Instance string
	// Checks are the checks of /readyz, in the order shown. None: always ready.
	Checks []Check
	// Log gets failed requests. Required.
	Log *slog.Logger
}

// Server answers /livez, /readyz and /metrics.
type Server struct {
	addr, setting string
	log           *slog.Logger
	http          *http.Server
	ln            net.Listener

	grace time.Duration // shutdownGrace; shorter in tests
}

// NewServer checks the configuration and starts nothing.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Registry == nil || cfg.Log == nil {
		return nil, errors.New("admin server: Registry and Log are required")
	}
	cfg.Setting = cmp.Or(cfg.Setting, "admin.listen")
	if _, _, err := net.SplitHostPort(cfg.Listen); err != nil {
		return nil, fmt.Errorf("%s %q: must be host:port, as in 127.0.0.1:9320: %w", cfg.Setting, cfg.Listen, err)
	}
	h, err := newHealth(cfg.Instance, cfg.Checks)
	if err != nil {
		return nil, err
	}
	return &Server{addr: cfg.Listen, setting: cfg.Setting, log: cfg.Log, http: httpServer(cfg, h),
		grace: shutdownGrace}, nil
}

// Listen binds the address, so that a start fails early if the port is taken; the error
// says what to do. Calling it is optional, because Run does it otherwise.
func (s *Server) Listen() error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		way := s.setting
		if !strings.HasPrefix(way, "--") { // a flag has no environment variable
			way += " or DUEFLEET_" + strings.ToUpper(strings.ReplaceAll(s.setting, ".", "_"))
		}
		return fmt.Errorf("%s %s is taken, perhaps by another server: stop that one, or give this one "+
			"its own address with %s: %w", s.setting, s.addr, way, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.setting, s.addr, err)
	}
	s.ln = ln
	return nil
}

// Addr returns the bound address, with the real port if the configured one is 0. Before
// Listen it returns the configured address.
func (s *Server) Addr() string {
	if s.ln == nil {
		return s.addr
	}
	return s.ln.Addr().String()
}

// Run serves until ctx ends. Then it lets open requests finish for up to 3 s, cuts off
// the rest and returns nil. It returns an error only if it can't bind the address or the
// listener breaks.
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
		_ = s.http.Close() // no use for the error
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
