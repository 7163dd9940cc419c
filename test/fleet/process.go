package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// process is one run of a program, in a process group of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	gone chan struct{}

	mu   sync.Mutex
	over bool
}

// environ is this process's environment without the variables that configure
// duefleet: a fleet takes its settings from the test, never from the shell of
// whoever runs it. Those that only tests read remain.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		return strings.HasPrefix(line, "DUEFLEET_") && !strings.HasPrefix(line, "DUEFLEET_TEST_")
	})
}

// startProcess runs a program whose output is appended to the file log. On
// Linux a child's death signal follows the thread that started it, so one
// goroutine starts the child and waits for it, on a thread that it keeps.
func startProcess(name, path string, args, env []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // outlives the call that starts it; end it with stop or kill
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	cmd.SysProcAttr = childAttr()
	p := &process{name: name, cmd: cmd, gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.reap()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) reap() {
	_ = p.cmd.Wait() // the exit code is read from the state
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	close(p.gone)
}

// code is the exit code, or -1 where a signal ended it. It may be asked once
// gone is closed.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// signal reaches the child unless it is over.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	if err := syscall.Kill(p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s to %s: %w", sig, p.name, err)
	}
	return nil
}
