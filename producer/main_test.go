package producer

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The servers that all tests share outlive them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/internal/stack.(*process).reap"))
}
