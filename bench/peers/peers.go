// Package peers runs other systems that deliver tasks when they are due, to compare
// duefleet with them. Most of them call a handler in their own process. The benchmark's
// handler publishes the task to RabbitMQ and waits for the confirm, as duefleet does.
//
// A member is a process of a peer that delivers tasks. It runs node, or this program with
// the argument peer.
package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/duefleet/duefleet/bench/harness"
)

// Peer is a system to compare duefleet with.
type Peer struct {
	// Name is the name in tables.
	Name string
	// members is the number of delivering processes.
	members int
	// missing returns an error if something that the peer needs isn't installed. It is
	// nil if the peer needs nothing.
	missing func() error
	// store starts the server for the tasks. Defaults to the run's Redis.
	store func(context.Context, *harness.Run) (store, error)
	// connect makes the client that schedules.
	connect func(context.Context, place) (client, error)
	// work runs a member until ctx ends. It is nil if command is set.
	work func(ctx context.Context, p place, ready func()) error
	// command returns the command of a member in another program.
	command func(ctx context.Context, p place) *exec.Cmd
}

// store is the server that keeps the tasks.
type store struct {
	// addr is host:port.
	addr string
	// memory returns the memory of the tasks, in bytes.
	memory func(context.Context) (int64, error)
	stop   func() error
}

// place holds the addresses that a member needs.
type place struct {
	store, broker, exchange, root string
}

// client schedules tasks.
type client interface {
	harness.Scheduler
	io.Closer
}

// All returns every peer.
func All() []Peer {
	return append(textbook(), asynqPeer("asynq", 0), asynqPeer("asynq, looking every 100 ms", 100*time.Millisecond),
		riverPeer(), bullMQ(), beanstalkd())
}

// Missing returns the reason why a peer can't be measured here, or nil.
func (p Peer) Missing() error {
	if p.missing == nil {
		return nil
	}
	return p.missing()
}

// These are the environment variables of a member.
const (
	envStore    = "BENCH_STORE"
	envBroker   = "BENCH_BROKER"
	envExchange = "BENCH_EXCHANGE"
)

// Member is the main function of a member: it works until its stdin ends.
func Member(name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	at := place{store: os.Getenv(envStore), broker: os.Getenv(envBroker), exchange: os.Getenv(envExchange)}
	for _, p := range All() {
		if p.Name == name && p.work != nil {
			err := p.work(ctx, at, func() { fmt.Println("ready") })
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return fmt.Errorf("no peer %q with members in this program", name)
}

// Running is a running peer.
type Running struct {
	client
	// Memory returns the memory of its tasks, in bytes.
	Memory  func(context.Context) (int64, error)
	members []*member
	stop    func() error
}

// Start starts the peer and returns when all members are ready. The peer publishes to
// queue.
func (p Peer) Start(ctx context.Context, r *harness.Run, queue string) (_ *Running, err error) {
	s := store{addr: r.Redis.Addr(), memory: r.Redis.Data}
	if p.store != nil {
		if s, err = p.store(ctx, r); err != nil {
			return nil, err
		}
	}
	run := &Running{Memory: s.memory, stop: s.stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, run.Stop())
		}
	}()
	at := place{store: s.addr, broker: r.URL(), exchange: queue, root: r.Root()}
	for n := range p.members {
		m, err := p.member(ctx, at, filepath.Join(r.Dir, fmt.Sprintf("%s-member-%d.log", queue, n+1)))
		if err != nil {
			return run, fmt.Errorf("start %s: %w", p.Name, err)
		}
		run.members = append(run.members, m)
	}
	run.client, err = p.connect(ctx, at)
	return run, err
}

// PIDs returns the members' process IDs.
func (r *Running) PIDs() []int {
	pids := make([]int, len(r.members))
	for i, m := range r.members {
		pids[i] = m.cmd.Process.Pid
	}
	return pids
}

// Stop stops the members, the client and the store.
func (r *Running) Stop() error {
	var errs []error
	if r.client != nil {
		errs = append(errs, r.client.Close())
	}
	for _, m := range r.members {
		m.stop()
	}
	if r.stop != nil {
		errs = append(errs, r.stop())
	}
	return errors.Join(errs...)
}

// member is one process of a peer.
type member struct {
	cmd    *exec.Cmd
	input  io.Closer
	output *bufio.Reader
}

func (p Peer) member(ctx context.Context, at place, log string) (*member, error) {
	var cmd *exec.Cmd
	if p.command != nil {
		cmd = p.command(ctx, at)
	} else {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd = exec.CommandContext(ctx, self, "peer", p.Name) //nolint:gosec // this program
		cmd.Env = append(os.Environ(), envStore+"="+at.store, envBroker+"="+at.broker, envExchange+"="+at.exchange)
	}
	m, _, err := startMember(cmd, log)
	return m, err
}

// startMember starts a process, which prints "ready" and later ends with its stdin.
func startMember(cmd *exec.Cmd, log string) (*member, io.Writer, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a log of ours
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	cmd.Stderr = out
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	m := &member{cmd: cmd, input: input, output: bufio.NewReader(output)}
	line, err := m.output.ReadString('\n')
	if strings.TrimSpace(line) != "ready" {
		m.stop()
		return nil, nil, fmt.Errorf("%s ended before it was ready: %w; see %s", cmd.Path, err, log)
	}
	return m, input, nil
}

// stop ends a member, and kills it if it doesn't end by itself.
func (m *member) stop() {
	const patience = 10 * time.Second
	_ = m.input.Close()
	kill := time.AfterFunc(patience, func() { _ = m.cmd.Process.Kill() })
	defer kill.Stop()
	_ = m.cmd.Wait()
}

// installed returns an error unless all programs are on PATH.
func installed(programs ...string) error {
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	return nil
}
