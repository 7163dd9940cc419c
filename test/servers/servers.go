// Package servers starts real redis-server, rabbitmq-server and consul processes for the
// demo, the tests and the benchmarks. Servers listen on 127.0.0.1 only, keep their files
// in a folder that the caller names, and end with the process that started them.
//
// Tests make a server fail with the methods Stop, Kill, Pause and Restart.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// startLimit bounds a start if ctx has no earlier deadline. RabbitMQ takes 5 to 8 s
	// alone, and ten times as long on a busy machine.
	startLimit = 3 * time.Minute
	// stopLimit bounds a graceful stop in the same way.
	stopLimit = time.Minute
	// askEvery is the pause between two checks of a starting server.
	askEvery = 25 * time.Millisecond
	// askLimit bounds one such check.
	askLimit = 2 * time.Second
)

// server is the common part of Redis, RabbitMQ and Consul. Its methods are safe for
// concurrent use, except that Restart must not overlap with Stop or another Restart.
type server struct {
	main *process
	// side is another process that main needs, such as epmd for RabbitMQ, or nil.
	side *process
	// listens are the addresses that must be free before a start.
	listens []string
	// ready returns nil once the server is ready for use.
	ready func(context.Context) error
	// ports keeps the chosen ports reserved.
	ports *ports
}

// Stop ends the server gracefully and waits for the end: everything it acknowledged is
// then on disk. If ctx ends first, or after a minute, Stop kills the server and returns
// an error. If the server isn't running, Stop does nothing.
func (s *server) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := s.main.stop(ctx)
	if s.side != nil {
		err = errors.Join(err, s.side.kill())
	}
	return err
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is gone. If the
// server isn't running, Kill does nothing.
func (s *server) Kill() error {
	err := s.main.kill()
	if s.side != nil {
		err = errors.Join(err, s.side.kill())
	}
	return err
}

// Pause freezes the server with SIGSTOP, as in a long stall: connections stay open, but
// nothing answers.
func (s *server) Pause() error { return s.main.pause() }

// Resume ends a pause with SIGCONT.
func (s *server) Resume() error { return s.main.resume() }

// Restart starts the server again on the same ports and data, and returns when it
// answers. A running server is stopped first.
func (s *server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return s.start(ctx)
}

// PID returns the server's process ID, or 0 if it isn't running.
func (s *server) PID() int { return s.main.pid() }

// Ended is closed when the latest process of the server is gone.
func (s *server) Ended() <-chan struct{} { return s.main.ended() }

// Log returns the path of the server's log, which has the output of all restarts.
func (s *server) Log() string { return s.main.log }

// start returns when the server answers. Otherwise it kills the server and returns the
// reason.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, addr := range s.listens {
		if err := checkFree(ctx, addr); err != nil {
			return fmt.Errorf("start %s: %w", s.main.name, err)
		}
	}
	for _, p := range []*process{s.side, s.main} {
		if p == nil {
			continue
		}
		if err := p.start(); err != nil {
			return errors.Join(err, s.Kill())
		}
	}
	if err := s.awaitReady(ctx); err != nil {
		err = fmt.Errorf("start %s: %w; the end of %s:\n%s", s.main.name, err, s.main.log, Tail(s.main.log))
		return errors.Join(err, s.Kill())
	}
	return nil
}

// awaitReady waits until the server answers, its process ends, or ctx ends.
func (s *server) awaitReady(ctx context.Context) error {
	ended := s.main.ended()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("the process ended")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w (%w)", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func (s *server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return s.ready(ctx)
}

// makeDir makes a server's folder and returns its absolute path.
func makeDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("dir must not be empty")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o750)
}

func address(port int) string {
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
}

// Tail returns the end of a log, for an error.
func Tail(path string) string {
	const most = 1500
	b, err := os.ReadFile(path) //nolint:gosec // the path of our own log
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
