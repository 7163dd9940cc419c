//go:build chaos

package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/test/fleet"
)

// programs holds the two programs, built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	if order := os.Getenv(appEnv); order != "" {
		os.Exit(runApp(order))
	}
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	code := fleet.RunTests(m, fleet.BuildConfig{}, &programs)
	if err := results.publish(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
