package harness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the CPU time of all threads of a process. It reads the process's CPU
// clock, which counts nanoseconds, because /proc counts only ticks of 10 ms.
func ProcessCPU(pid int) (time.Duration, error) {
	// The ID that Linux gives the clock of another process: clock_getcpuclockid(3).
	const scheduled = 2
	clock := int32(^pid<<3 | scheduled) //nolint:gosec // a PID has 22 bits at most
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ProcessesCPU returns the sum of ProcessCPU for several processes.
func ProcessesCPU(pids ...int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		d, err := ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		total += d
	}
	return total, nil
}

// PeakRSS returns a process's peak resident memory in bytes.
func PeakRSS(pid int) (int64, error) { return statusBytes(pid, "VmHWM:") }

// RSS returns a process's current resident memory in bytes.
func RSS(pid int) (int64, error) { return statusBytes(pid, "VmRSS:") }

func statusBytes(pid int, field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kB, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kB << 10, err
		}
	}
	return 0, errors.New("read the memory of a process: no " + field)
}
