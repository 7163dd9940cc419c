package servertest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
)

// RedisWithClock starts a Redis for one test, whose clock can be set. source is the path of
// test/chaos/testdata/clock.c. set sets the clock ahead of this machine's.
func RedisWithClock(t testing.TB, source string) (server *servers.Redis, set func(ahead time.Duration)) {
	t.Helper()
	Need(t, "redis-server")
	dir := t.TempDir()
	library, offset := filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock.offset")
	if runtime.GOOS != "linux" {
		t.Skip("LD_PRELOAD is needed")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput() //nolint:gosec // our own arguments
	if err != nil {
		t.Fatalf("build a clock that can be set: %v: %s", err, out)
	}
	check.OK(t, os.WriteFile(offset, make([]byte, 8), 0o600))
	server, err = servers.StartRedis(t.Context(), servers.RedisConfig{Dir: dir,
		Env: []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + offset}})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, server.Kill()) })
	return server, func(ahead time.Duration) {
		t.Helper()
		file, err := os.OpenFile(offset, os.O_WRONLY, 0) //nolint:gosec // mapped by Redis: it must not be truncated
		check.OK(t, err)
		_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second))) //nolint:gosec // two's complement
		check.OK(t, err)
		check.OK(t, file.Close())
	}
}
