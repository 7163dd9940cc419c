package consumer

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(victim())
	}
	// The servers that all tests share outlive them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/internal/stack.(*process).reap"))
}
