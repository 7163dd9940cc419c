package conform

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) {
	// A server that servertest started ends with the binary.
	os.Exit(wait.Leaks(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap")))
}
