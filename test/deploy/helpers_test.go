package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// root is the repository's folder, relative to this package.
const root = "../.."

// Build arguments of the image.
const (
	imageVersion = "v9.8.7"
	imageCommit  = "0123456789abcdef0123456789abcdef01234567"
)

// file reads a file of the repository.
func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	check.OK(t, err)
	return string(b)
}

// skip skips a test because this machine lacks something. The line says what to install.
// In continuous integration, where everything is required, the test fails instead.
func skip(t *testing.T, line string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("DUEFLEET_TEST_REQUIRE") == "1" {
		t.Fatal(line)
	}
	t.Skip(line)
}

// tool returns the path of a tool that `make deploy-tools` installs.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path := filepath.Join(absolute(t, root), ".dev/bin", name); executable(path) {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		skip(t, name+" is not installed; to install it: make deploy-tools")
	}
	return path
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	check.OK(t, err)
	return abs
}

// command returns a command of the test; stdin may be nil. It may run as long as the
// test, since some commands compile.
func command(t *testing.T, stdin []byte, name string, args ...string) *exec.Cmd {
	t.Helper()
	return commandUntil(t.Context(), stdin, name, args...)
}

// commandUntil is command for one that is killed when ctx ends.
func commandUntil(ctx context.Context, stdin []byte, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = environ()
	return cmd
}

// doctorLimit is for how long `scanner doctor` may run, whatever is wrong with the servers.
const doctorLimit = 10 * time.Second

// environ returns the environment for programs of a test. It leaves out variables that
// configure duefleet, and adds more.
func environ(more ...string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(line string) bool {
		return strings.HasPrefix(line, "DUEFLEET_") && !strings.HasPrefix(line, "DUEFLEET_TEST_")
	}), more...)
}

// must returns a command's output, and fails the test if the command fails.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// refused returns the output of a command that must fail.
func refused(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%s: %v, want a refusal\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}
