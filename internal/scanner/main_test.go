package scanner

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy traces every packet
	os.Exit(servertest.Leaks(m))
}
