package stopped_test

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/stopped"
)

// TestMain writes without end if this is the program that is to be stopped.
func TestMain(m *testing.M) {
	if os.Getenv("DUEFLEET_TEST_WRITES") == "" {
		os.Exit(m.Run())
	}
	for range 8 {
		go func() {
			for {
				_, _ = os.Stdout.WriteString("x")
				for began := time.Now(); time.Since(began) < 200*time.Microsecond; {
				}
			}
		}()
	}
	select {}
}

// After Await, no thread of a program writes.
func TestAStoppedProgramDoesNothing(t *testing.T) {
	t.Parallel()
	for range 10 {
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), "DUEFLEET_TEST_WRITES=1")
		program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := os.Create(t.TempDir() + "/out")
		check.OK(t, err)
		program.Stdout = out
		check.OK(t, program.Start())
		check.Until(t, "the program to write", func() bool {
			at, err := out.Seek(0, io.SeekCurrent)
			return err == nil && at > 0
		})
		check.OK(t, syscall.Kill(program.Process.Pid, syscall.SIGSTOP))
		check.OK(t, stopped.Await(program.Process.Pid))
		before, err := out.Seek(0, io.SeekCurrent)
		check.OK(t, err)
		time.Sleep(10 * time.Millisecond)
		after, err := out.Seek(0, io.SeekCurrent)
		check.OK(t, err)
		check.OK(t, program.Process.Kill())
		_ = program.Wait()
		check.OK(t, out.Close())
		if after != before {
			t.Fatalf("%d bytes when it had stopped, %d after that", before, after)
		}
	}
}
