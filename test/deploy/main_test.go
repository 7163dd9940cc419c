package deploy_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programs holds the two programs, built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	check.Parallel(2)
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{}, &programs))
}

// newSettings returns the settings of a sandbox on the shared servers, without topics.
func newSettings(t *testing.T) fleet.Settings {
	t.Helper()
	servertest.Need(t, "redis-server", "rabbitmq-server")
	s := fleet.Settings{RabbitMQURL: servertest.RabbitMQ(t), ShutdownTimeout: check.Hang.String()}
	s.RedisAddr, s.RedisPrefix = servertest.Redis(t)
	return s
}

// writeSettings writes a configuration file and returns its path.
func writeSettings(t *testing.T, s fleet.Settings) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	check.OK(t, fleet.WriteConfig(path, s.Document()))
	return path
}

// startScanner returns a ready scanner, which is stopped after the test.
func startScanner(t *testing.T, s fleet.Settings) *fleet.Scanner {
	t.Helper()
	return startScannerOf(t, writeSettings(t, s))
}

// startScannerOf is startScanner with a given configuration file.
func startScannerOf(t *testing.T, path string) *fleet.Scanner {
	t.Helper()
	return startScannerWith(t, fleet.ScannerConfig{Config: path})
}

// startScannerWith is startScanner with a part of the configuration of its process.
func startScannerWith(t *testing.T, cfg fleet.ScannerConfig) *fleet.Scanner {
	t.Helper()
	cfg.Binary, cfg.Dir = programs.Scanner, t.TempDir()
	scanner, err := fleet.StartScanner(check.Context(t), cfg)
	check.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*check.Hang) // longer than the scanner's own limit
		defer cancel()
		if code, err := scanner.Stop(ctx); err != nil || code != 0 {
			t.Errorf("the scanner ended with code %d, %v", code, err)
		}
	})
	return scanner
}
