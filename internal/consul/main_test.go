package consul

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) {
	// The servers that all tests share outlive them.
	os.Exit(wait.Leaks(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap")))
}
