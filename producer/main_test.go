package producer

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/duefleet/duefleet/test/wait"
)

// settled gives goroutines that are about to end the time they need.
type settled struct {
	*testing.M
	ignored goleak.Option
}

func (s settled) Run() int {
	code := s.M.Run()
	for began := time.Now(); code == 0 && time.Since(began) < wait.Hang; {
		if goleak.Find(s.ignored) == nil {
			break
		}
	}
	return code
}

func TestMain(m *testing.M) {
	// The servers that all tests share outlive them.
	servers := goleak.IgnoreAnyFunction("github.com/duefleet/duefleet/test/servers.(*process).reap")
	goleak.VerifyTestMain(settled{m, servers}, servers)
}
