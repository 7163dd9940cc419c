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

// environ returns this process's environment without the variables that configure
// duefleet. A fleet takes its settings from the test, never from a developer's shell.
// Variables that only tests read are kept.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		return strings.HasPrefix(line, "DUEFLEET_") && !strings.HasPrefix(line, "DUEFLEET_TEST_")
	})
}

// startProcess starts a program and appends its output to the file log. On Linux a
// child's death signal depends on the thread that started it. So one goroutine locks its
// thread, starts the child and waits for it.
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

// code returns the exit code, or -1 if a signal ended the program. Call it only after
// gone is closed.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// signal sends sig to the child unless the child has ended.
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
