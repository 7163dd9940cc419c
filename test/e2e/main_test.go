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

// programs are built once for all tests.
var programs fleet.Binaries

func TestMain(m *testing.M) {
	flag.Parse()
	runBeside()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(fleet.RunTests(m, fleet.BuildConfig{Race: raceEnabled}, &programs))
}

// runBeside runs more tests at once than there are processors, unless the command
// line says how many: most of them wait most of the time.
func runBeside() {
	const each = 3
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(each*runtime.GOMAXPROCS(0))) // the flag is there: a test is running
	}
}
