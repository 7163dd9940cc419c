package cli

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

func TestThreadsFollowTheLoad(t *testing.T) {
	for _, row := range []struct {
		used                float64
		threads, most, want int
	}{
		{0, 1, 8, 1}, {0.7, 1, 8, 1}, {0.8, 1, 8, 2}, {1, 2, 8, 2}, {1.6, 2, 8, 4}, {2.9, 3, 3, 3}, {2.9, 3, 4, 4},
		{0.6, 2, 8, 2}, {0.4, 2, 8, 1}, {0.9, 4, 8, 2}, {0.1, 3, 3, 1}, {0.1, 1, 1, 1},
	} {
		check.Equal(t, "threads", threadsFor(row.used, row.threads, row.most), row.want)
	}
}

// TestAServerBeginsWithOneThread, and gives back the others when it ends. A process that is busy
// has more processor time later.
func TestAServerBeginsWithOneThread(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	ctx, stop := context.WithCancel(t.Context())
	FewThreads(ctx)
	check.Equal(t, "threads", runtime.GOMAXPROCS(0), 1)
	stop()
	check.Until(t, "the threads of before", func() bool { return runtime.GOMAXPROCS(0) == 2 })
	t.Setenv("GOMAXPROCS", "2")
	FewThreads(t.Context())
	check.Equal(t, "threads that an operator set", runtime.GOMAXPROCS(0), 2)

	used, err := processorTime()
	check.OK(t, err)
	check.Until(t, "processor time to be used", func() bool {
		for end := time.Now().Add(10 * time.Millisecond); time.Now().Before(end); {
			continue
		}
		now, err := processorTime()
		return err == nil && now > used
	})
}
