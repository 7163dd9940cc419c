package bulk

import (
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }
