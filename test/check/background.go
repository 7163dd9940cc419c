package check

import (
	"context"
	"sync"
	"testing"
)

// Background runs a function in a goroutine until the caller calls end or the test ends.
// Then run's context ends, and run must return nil within Hang.
func Background(t testing.TB, what string, run func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := Receive(t, "the end of "+what, ended); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	t.Cleanup(end)
	return end
}
