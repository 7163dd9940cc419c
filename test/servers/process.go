package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/duefleet/duefleet/test/servers/stopped"
)

// process is one child in a process group of its own. It can be started again after it
// ended.
type process struct {
	name string
	path string
	args []string
	env  []string
	dir  string
	log  string
	// quit is the signal that ends the child gracefully. 0 means SIGTERM.
	quit syscall.Signal
	// user is the user who runs the child. nil means the user of this process.
	user *syscall.Credential

	mu    sync.Mutex
	child *os.Process
	gone  chan struct{}
}

// start starts the child. On Linux a child's death signal depends on the thread that
// started it. So one goroutine locks its thread, starts the child and waits for it.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer out.Close()

	cmd := exec.Command(p.path, p.args...) //nolint:gosec,noctx // outlives the call that starts it; end it with Stop or Kill
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.env, p.dir, out, out
	cmd.SysProcAttr = childAttr()
	cmd.SysProcAttr.Credential = p.user
	started, gone := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.reap(cmd, gone)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.child, p.gone = cmd.Process, gone
	return nil
}

// reap waits for the child, then kills all processes left in its group. It ignores the
// child's exit code, because the log tells more.
func (p *process) reap(cmd *exec.Cmd, gone chan struct{}) {
	_ = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = nil
	close(gone)
}

// ended is closed when the latest child is gone.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return 0
	}
	return p.child.Pid
}

// stop sends SIGTERM, or quit, to the child alone, since the child ends its own children.
// It resumes a paused child, which could not end otherwise.
func (p *process) stop(ctx context.Context) error {
	if p.pid() == 0 {
		return nil
	}
	quit := p.quit
	if quit == 0 {
		quit = syscall.SIGTERM
	}
	if err := p.signal(quit, false); err != nil {
		return err
	}
	if err := p.signal(syscall.SIGCONT, true); err != nil {
		return err
	}
	select {
	case <-p.ended():
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("stop %s: killed it, since it did not end: %w", p.name, ctx.Err())
		return errors.Join(err, p.kill())
	}
}

func (p *process) kill() error {
	if p.pid() == 0 {
		return nil
	}
	if err := p.signal(syscall.SIGKILL, true); err != nil {
		return err
	}
	<-p.ended()
	return nil
}

// pause returns once the child and its children have stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP, true); err != nil {
		return err
	}
	if err := stopped.Await(p.pid()); err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	return nil
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT, true) }

// signal sends sig to the child or to its whole group. If the child has ended, only
// SIGSTOP is an error.
func (p *process) signal(sig syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		if sig == syscall.SIGSTOP {
			return fmt.Errorf("pause %s: it does not run", p.name)
		}
		return nil
	}
	pid := p.child.Pid
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s to %s: %w", sig, p.name, err)
	}
	return nil
}
