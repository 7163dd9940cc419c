package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildConfig configures Build.
type BuildConfig struct {
	// Dir is the folder for the programs. It is made if missing. Required.
	Dir string
	// Race builds with the race detector: a program that finds a race exits with code 66.
	// Defaults to false.
	Race bool
}

// Binaries holds the paths of the two programs.
type Binaries struct {
	Scanner, Producer string
}

// Build builds scanner and producer from the module around the working directory. With a
// warm build cache it takes a second or two. The error contains the compiler's output.
func Build(ctx context.Context, cfg BuildConfig) (Binaries, error) {
	root, err := moduleRoot()
	if err != nil {
		return Binaries{}, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return Binaries{}, err
	}
	// -trimpath is in GOFLAGS or not, as for the caller. Otherwise Go would compile all packages again.
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if cfg.Race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/scanner", "./cmd/producer")...) //nolint:gosec // the arguments are ours
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOGC=400") // as in the Makefile: takes half the time on a cold cache
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("build scanner and producer: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return Binaries{
		Scanner:  filepath.Join(dir, "scanner"),
		Producer: filepath.Join(dir, "producer"),
	}, nil
}

// RunTests builds the programs, stores their paths in programs, runs the tests, and
// returns the exit code. It sets cfg.Dir itself.
func RunTests(m interface{ Run() int }, cfg BuildConfig, programs *Binaries) int {
	dir, err := os.MkdirTemp("", "duefleet-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		cfg.Dir = dir
		*programs, err = Build(context.Background(), cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// moduleRoot returns the nearest folder with a go.mod, from the working directory
// upwards. Tests run in the folder of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find go.mod: neither here nor above; run this inside the repository")
		}
		dir = up
	}
}
