// Package servers starts real redis-server, rabbitmq-server and consul processes
// for the demo, the tests and the benchmarks. Servers listen on 127.0.0.1
// alone, keep their files in a folder the caller names, and die with the
// process that started them, so that nothing of them outlives a test.
//
// Every handle can stop, kill, pause and restart its server, which is how the
// fault tests make a server fail.
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
	// startLimit bounds a start where ctx has no earlier deadline: RabbitMQ
	// takes 5 to 8 s alone, ten times that on a machine that is busy.
	startLimit = 3 * time.Minute
	// stopLimit bounds a graceful stop in the same way.
	stopLimit = time.Minute
	// askEvery is the pause between two questions to a server that starts.
	askEvery = 25 * time.Millisecond
	// askLimit bounds one such question.
	askLimit = 2 * time.Second
)

// server is what Redis, RabbitMQ and Consul have in common. Its methods may be
// called from several goroutines, though not Restart beside Stop or Restart.
type server struct {
	main *process
	// side is a process that main needs; nil where it needs none.
	side *process
	// listens are the addresses that must be free before a start.
	listens []string
	// ready answers nil once the server does what it is for.
	ready func(context.Context) error
	// ports keeps the chosen ports from being chosen again.
	ports *ports
}

// Stop asks the server to end and waits until it has; what it acknowledged is
// on disk then. When ctx ends first, or after a minute, the server is killed and
// the error says so. Stopping a server that doesn't run does nothing.
func (s *server) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := s.main.stop(ctx)
	if s.side != nil {
		err = errors.Join(err, s.side.kill())
	}
	return err
}

// Kill ends the server with SIGKILL, as a crash would, and returns when it is
// gone. Killing a server that doesn't run does nothing.
func (s *server) Kill() error {
	err := s.main.kill()
	if s.side != nil {
		err = errors.Join(err, s.side.kill())
	}
	return err
}

// Pause freezes the server with SIGSTOP: connections stay open and nothing
// answers, as in a long stall.
func (s *server) Pause() error { return s.main.pause() }

// Resume ends a Pause.
func (s *server) Resume() error { return s.main.resume() }

// Restart starts the server again on the same ports and the same data, and
// stops it first if it runs. It returns when the server answers.
func (s *server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return s.start(ctx)
}

// PID is the server's process ID, or 0 while it doesn't run.
func (s *server) PID() int { return s.main.pid() }

// Ended is closed when the process that was started last is gone.
func (s *server) Ended() <-chan struct{} { return s.main.ended() }

// Log is the path of the file that takes the server's output, over all its
// restarts.
func (s *server) Log() string { return s.main.log }

// start returns when the server answers, or kills it and says why it doesn't.
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

// awaitReady asks until the server answers, its process ends, or ctx does.
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

// makeDir makes the folder a server keeps its files in and returns its
// absolute path.
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

// Tail is the end of a log, for an error.
func Tail(path string) string {
	const most = 1500
	b, err := os.ReadFile(path) //nolint:gosec // the path of our own log
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
