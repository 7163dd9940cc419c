package cli

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

const (
	threadsEvery = time.Second // how often the number of threads is decided.
	mostBusy     = 0.75        // of the threads: busier ones are too few.
	leastBusy    = 0.25        // of the threads: for less, half as many would do.
)

// FewThreads lets a server run Go code on one thread at a time, until ctx ends. While it keeps its
// threads busy it gets twice as many, up to as many as Go would take. Otherwise a server whose work
// comes in small pieces would wake a second thread for each piece, which mostly finds nothing to do.
// FewThreads does nothing if GOMAXPROCS is set, or where no /proc tells how busy the process is. See
// docs/adr/0049.
func FewThreads(ctx context.Context) {
	most := runtime.GOMAXPROCS(0)
	before, err := processorTime()
	if err != nil || most == 1 || os.Getenv("GOMAXPROCS") != "" {
		return
	}
	runtime.GOMAXPROCS(1)
	go func() {
		defer runtime.GOMAXPROCS(most)
		tick, began := time.NewTicker(threadsEvery), time.Now()
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				used, err := processorTime()
				if err != nil {
					continue
				}
				threads := runtime.GOMAXPROCS(0)
				if next := threadsFor((used-before).Seconds()/now.Sub(began).Seconds(), threads, most); next != threads {
					runtime.GOMAXPROCS(next)
				}
				before, began = used, now
			}
		}
	}()
}

// threadsFor returns how many threads a process needs that has some, 1 to most. In the mean it used a
// number of them.
func threadsFor(used float64, threads, most int) int {
	switch {
	case used > mostBusy*float64(threads):
		return min(2*threads, most)
	case used < leastBusy*float64(threads):
		return max(threads/2, 1)
	}
	return threads
}

// processorTime returns how much processor time this process has taken, to 10 ms.
func processorTime() (time.Duration, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stat, err := self.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}
