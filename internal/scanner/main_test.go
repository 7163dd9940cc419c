package scanner

import (
	"os"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	// A server that servertest started ends with the binary.
	os.Exit(wait.Leaks(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap")))
}
