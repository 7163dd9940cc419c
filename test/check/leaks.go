package check

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Leaks runs a package's tests and returns their exit code, for use in TestMain. If
// goroutines are still running after Hang, it prints them and returns 1.
func Leaks(m *testing.M, allowed ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	var err error
	for began := time.Now(); time.Since(began) < Hang; {
		if err = goleak.Find(allowed...); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
