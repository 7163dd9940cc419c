package e2e_test

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorEndsAtTheFirstSignal: SIGINT and SIGTERM end doctor within a second while a
// broker is silent. It prints what it knows.
func TestDoctorEndsAtTheFirstSignal(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			var listen net.ListenConfig
			silent, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
			check.OK(t, err)
			defer silent.Close()
			defer context.AfterFunc(check.Context(t), func() { silent.Close() })() // no Accept is endless
			settings := fleet.Settings{Topics: map[string]fleet.Topic{"orders": {"shards": 1}}}
			settings.RedisAddr, settings.RedisPrefix = servertest.Redis(t)
			settings.RabbitMQURL = "amqp://guest:guest@" + silent.Addr().String() + "/"
			config := filepath.Join(t.TempDir(), "config.yaml")
			check.OK(t, fleet.WriteConfig(config, settings.Document()))
			ctx, cancel := context.WithTimeout(check.Context(t), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, programs.Scanner, "doctor", "--config", config)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			check.OK(t, cmd.Start())
			conn, err := silent.Accept() // doctor asks now
			if err != nil {
				_ = cmd.Wait()
				t.Fatalf("doctor doesn't ask the broker: %v\n%s", err, out.String())
			}
			defer conn.Close()
			check.OK(t, cmd.Process.Signal(signal))
			signaled := time.Now()
			_ = cmd.Wait() // the exit code tells
			took := time.Since(signaled)
			const limit = time.Second + 3*time.Second // the rest is for a slow machine
			if code := cmd.ProcessState.ExitCode(); code != 1 || took > limit ||
				!strings.Contains(out.String(), "not checked: rabbitmq.connection: interrupted") {
				t.Errorf("code %d after %s:\n%s", code, took, out.String())
			}
		})
	}
}
