package task

import (
	"os"
	"regexp"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestTheGoDirectiveNamesNoPatchRelease: a patch release in the go directive would force
// it on every application that uses the libraries.
func TestTheGoDirectiveNamesNoPatchRelease(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../go.mod")
	check.OK(t, err)
	directive := regexp.MustCompile(`(?m)^go (1\.\d+(\.\d+)?)$`).FindSubmatch(module)
	if directive == nil || len(directive[2]) > 0 && string(directive[2]) != ".0" {
		t.Errorf("got %q, want the first release of a Go version, as in go 1.26.0", directive)
	}
}
