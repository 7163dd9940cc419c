package e2e_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/test/fleet"
)

// programs holds the two programs, built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	runBeside()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{Race: raceEnabled}, &programs))
}

// runBeside lets more tests run at a time than there are processors, because most tests
// wait most of the time. It doesn't change -test.parallel if the command line sets it.
func runBeside() {
	const each = 3
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(each*runtime.GOMAXPROCS(0))) // the flag exists in every test binary
	}
}
