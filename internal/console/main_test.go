package console

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programsDir is the folder of the programs that build makes.
var programsDir string

var build = sync.OnceValues(func() (fleet.Binaries, error) {
	return fleet.Build(context.Background(), fleet.BuildConfig{Dir: programsDir})
})

func TestMain(m *testing.M) {
	logging.Disable() // as the program does
	var err error
	if programsDir, err = os.MkdirTemp("", "duefleet-console-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := servertest.Leaks(m)
	_ = os.RemoveAll(programsDir)
	os.Exit(code)
}

// scannerProgram returns the path of the program scanner.
func scannerProgram(t *testing.T) string {
	t.Helper()
	programs, err := build()
	check.OK(t, err)
	return programs.Scanner
}
