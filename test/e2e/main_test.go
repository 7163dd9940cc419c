package e2e_test

import (
	"flag"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/test/fleet"
)

// programs are built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{Race: raceEnabled}, &programs))
}
