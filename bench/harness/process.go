package harness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/PID/stat, USER_HZ, which is 100 a second on
// every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// ProcessCPU is the processor time a process has used, all threads together, to
// 10 ms.
func ProcessCPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold anything: count from its end.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const user, system = 11, 12 // of proc(5), which counts from 1 and the PID
	if len(fields) <= system {
		return 0, fmt.Errorf("read the times of process %d: %q", pid, b)
	}
	var ticks int64
	for _, at := range []int{user, system} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the times of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// ProcessesCPU is ProcessCPU of several.
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

// PeakRSS is the most memory a process has had resident, in bytes.
func PeakRSS(pid int) (int64, error) { return statusBytes(pid, "VmHWM:") }

// RSS is what it has resident now, in bytes.
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
