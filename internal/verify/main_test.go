package verify

import (
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/wait"
)

func TestMain(m *testing.M) { os.Exit(wait.Leaks(m)) }
