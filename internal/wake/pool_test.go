package wake

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestAPoolRunsAllAndKeepsFew: as many functions as there are run at the same time. One goroutine
// then runs all that come one after the other.
func TestAPoolRunsAllAndKeepsFew(t *testing.T) {
	t.Parallel()
	const spare, together = 2, 20
	p := NewPool(spare)
	var all, running sync.WaitGroup
	end := make(chan struct{})
	all.Add(together)
	running.Add(together)
	for range together {
		p.Go(func() {
			defer all.Done()
			running.Done()
			<-end
		})
	}
	running.Wait()
	close(end)
	all.Wait()
	check.Until(t, "the spare goroutines to wait", func() bool { return len(p.spare) == spare })
	ids := map[string]bool{}
	for range together {
		id := make(chan string)
		p.Go(func() { id <- goroutine() })
		ids[<-id] = true
		check.Until(t, "the goroutine to wait again", func() bool { return len(p.spare) == spare })
	}
	if len(ids) > spare {
		t.Errorf("%d goroutines ran %d functions, %d were spare", len(ids), together, spare)
	}
	p.Close()
}

// TestAPoolWaitsForItsFunctions when it is closed.
func TestAPoolWaitsForItsFunctions(t *testing.T) {
	t.Parallel()
	p, ended := NewPool(1), false
	begun, end := make(chan struct{}), make(chan struct{})
	p.Go(func() {
		close(begun)
		<-end
		ended = true
	})
	<-begun
	go close(end)
	p.Close()
	check.Equal(t, "ended", ended, true)
}

// goroutine returns the ID of the goroutine that calls it.
func goroutine() string {
	text := make([]byte, 64)
	id, _, _ := strings.Cut(string(text[:runtime.Stack(text, false)]), " [")
	return id
}
