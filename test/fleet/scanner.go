package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/duefleet/duefleet/test/servers/stopped"
)

// askEvery is the pause between two checks of a condition.
const askEvery = 25 * time.Millisecond

// getLimit is the timeout of a request to a scanner.
const getLimit = 60 * time.Second

// ScannerConfig configures a Scanner.
type ScannerConfig struct {
	// Binary is the path of scanner. Required.
	Binary string
	// Config is the path of its configuration, which scanners of a fleet may share.
	// Required.
	Config string
	// Dir is the folder for the log. It is made if missing. Required.
	Dir string
	// Name identifies the scanner in file names and errors. Defaults to "scanner".
	Name string
	// Verb is the verb that serves, run or console. Defaults to "run".
	Verb string
	// Admin is the address where it listens, passed as an environment variable. Defaults
	// to a free port of 127.0.0.1.
	Admin string
	// Env is added to the environment, as in "DUEFLEET_LOG_LEVEL=debug".
	Env []string
	// Default lets the scanner take its admin address from its configuration. Admin is then
	// only the address that the methods send requests to.
	Default bool
	// Unready makes Start return without waiting: for a scanner that can't become ready.
	Unready bool
}

// Scanner is one member of a fleet, as a process. Its methods are safe for concurrent
// use, except that two calls of Start must not overlap.
type Scanner struct {
	cfg ScannerConfig
	log string

	mu  sync.Mutex
	run *process
}

// StartScanner starts a scanner and waits until it is ready. If the scanner exits or ctx
// ends first, the error contains the end of the log.
func StartScanner(ctx context.Context, cfg ScannerConfig) (*Scanner, error) {
	if cfg.Name == "" {
		cfg.Name = "scanner"
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	if cfg.Admin == "" {
		addr, err := FreeAddress(ctx)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
		}
		cfg.Admin = addr
	}
	s := &Scanner{cfg: cfg, log: filepath.Join(cfg.Dir, cfg.Name+".log")}
	return s, s.Start(ctx)
}

// Start starts a stopped or killed scanner again, with the same configuration and
// address.
func (s *Scanner) Start(ctx context.Context) error {
	env := environ()
	if !s.cfg.Default {
		env = append(env, "DUEFLEET_ADMIN_LISTEN="+s.cfg.Admin)
	}
	env = append(env, s.cfg.Env...)
	args := []string{cmp.Or(s.cfg.Verb, "run"), "--config", s.cfg.Config}
	run, err := startProcess(s.cfg.Name, s.cfg.Binary, args, env, s.log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.run = run
	s.mu.Unlock()
	if s.cfg.Unready {
		return nil
	}
	if err := s.awaitReady(ctx, run); err != nil {
		err = fmt.Errorf("start %s: %w; the end of %s:\n%s", s.cfg.Name, err, s.log, tail(s.log))
		return errors.Join(err, s.Kill())
	}
	return nil
}

// awaitReady waits until the scanner is ready or has ended. Its answer may take long if it has
// thousands of topics, so it is asked less often then.
func (s *Scanner) awaitReady(ctx context.Context, run *process) error {
	var next time.Time
	err := Await(ctx, func() bool {
		select {
		case <-run.gone:
			return true
		default:
			begun := time.Now()
			if begun.Before(next) {
				return false
			}
			err := s.Get(ctx, "/readyz", io.Discard)
			next = time.Now().Add(min(10*time.Since(begun), 10*askEvery))
			return err == nil
		}
	})
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	select {
	case <-run.gone:
		return fmt.Errorf("it ended with code %d", run.code())
	default:
		return nil
	}
}

// Get sends a GET request to the scanner's HTTP server and copies the response body to
// body. A status other than 200 is an error, but the body is still copied.
func (s *Scanner) Get(ctx context.Context, path string, body io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, getLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.cfg.Admin+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(body, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, resp.Status)
	}
	return nil
}

// Stop sends SIGTERM and returns the exit code after the scanner ended. If ctx ends
// first, Stop kills the scanner and returns an error.
func (s *Scanner) Stop(ctx context.Context) (code int, err error) {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	return s.Wait(ctx)
}

// StopAll stops all scanners at the same time and skips nil ones. An exit code other than
// 0 is an error.
func StopAll(ctx context.Context, scanners []*Scanner) error {
	errs := make([]error, len(scanners))
	var all sync.WaitGroup
	for i, s := range scanners {
		if s == nil {
			continue
		}
		all.Go(func() {
			code, err := s.Stop(ctx)
			if err == nil && code != 0 {
				err = fmt.Errorf("%s ended with code %d, want 0", s.Log(), code)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Wait returns the exit code after the scanner ended. If ctx ends first, Wait kills the
// scanner and returns an error.
func (s *Scanner) Wait(ctx context.Context) (code int, err error) {
	run := s.current()
	select {
	case <-run.gone:
		return run.code(), nil
	case <-ctx.Done():
		err := fmt.Errorf("stop %s: killed it, since it did not end: %w", s.cfg.Name, ctx.Err())
		return -1, errors.Join(err, s.Kill())
	}
}

// Kill ends the scanner with SIGKILL and waits until it is gone. If the scanner isn't
// running, Kill does nothing.
func (s *Scanner) Kill() error {
	if err := s.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.current().gone
	return nil
}

// Pause freezes the scanner with SIGSTOP, as in a long stall: its connections stay open,
// but it does nothing. Pause returns once each of its threads has stopped.
func (s *Scanner) Pause() error {
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := stopped.Await(s.PID()); err != nil {
		return fmt.Errorf("pause %s: %w", s.cfg.Name, err)
	}
	return nil
}

// Resume ends a pause with SIGCONT.
func (s *Scanner) Resume() error { return s.Signal(syscall.SIGCONT) }

// Signal sends sig unless the scanner has ended.
func (s *Scanner) Signal(sig syscall.Signal) error { return s.current().signal(sig) }

// Gone is closed when the scanner has ended.
func (s *Scanner) Gone() <-chan struct{} { return s.current().gone }

// PID returns the process ID of the latest run.
func (s *Scanner) PID() int { return s.current().cmd.Process.Pid }

// Log returns the path of the log, which has the output of all runs.
func (s *Scanner) Log() string { return s.log }

// Admin returns the address that serves /livez, /readyz and /metrics.
func (s *Scanner) Admin() string { return s.cfg.Admin }

func (s *Scanner) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// FreeAddress returns a free address of 127.0.0.1. The port is below Linux's ephemeral
// ports, so that no client gets it by chance. It stays reserved while this process lives:
// no other caller of FreeAddress or of package servers gets it, in any process.
func FreeAddress(ctx context.Context) (string, error) {
	const lowest, highest, tries = 12000, 32000, 200
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		if !reserve(ctx, port) {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		// Dial instead of listening: a program that another goroutine starts at this
		// moment could inherit a listening socket.
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return addr, ctx.Err()
		}
		_ = conn.Close()
	}
	return "", errors.New("choose a port: found none free")
}

// Await polls until the condition holds. If ctx ends first, it returns ctx's error.
func Await(ctx context.Context, condition func() bool) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// tail returns the end of a log, for an error.
func tail(path string) string {
	const most = 2000
	b, err := os.ReadFile(path) //nolint:gosec // the path of our own log
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
