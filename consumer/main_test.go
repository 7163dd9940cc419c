package consumer

import (
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
		os.Exit(1)
	}
	os.Exit(servertest.Leaks(m))
}
