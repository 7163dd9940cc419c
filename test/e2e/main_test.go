package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/fleet"
)

// programs are built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "duefleet-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	programs, err = fleet.Build(context.Background(), fleet.BuildConfig{Dir: dir, Race: raceEnabled})
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}
