package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of /proc/stat and /proc/PID/stat, USER_HZ. It is 100 per second
// on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// Others measures the CPU time of processes other than this program and its children. If
// other processes use much, the results say little.
type Others struct {
	at         time.Time
	busy, ours time.Duration
}

// WatchOthers starts to measure.
func WatchOthers() (Others, error) {
	busy, err := busyCPU()
	if err != nil {
		return Others{}, err
	}
	ours, err := treeCPU(os.Getpid())
	return Others{at: time.Now(), busy: busy, ours: ours}, err
}

// Share returns the others' part of the whole machine's CPU time since WatchOthers, from
// 0 to 1.
func (o Others) Share() (float64, error) {
	now, err := WatchOthers()
	if err != nil {
		return 0, err
	}
	all := now.at.Sub(o.at) * time.Duration(runtime.NumCPU())
	// The kernel counts both times separately and in ticks, so the difference may be
	// slightly below zero.
	return max(0, float64((now.busy-o.busy)-(now.ours-o.ours))/float64(all)), nil
}

// busyCPU returns the CPU time that all processes of the machine have used, and the time
// stolen by its host. It includes interrupts, because most kernels also charge their time
// to the interrupted process.
func busyCPU() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	const user, nice, system, irq, softirq, steal = 1, 2, 3, 6, 7, 8 // of proc(5), after the word cpu
	return ticks(strings.Fields(line), user, nice, system, irq, softirq, steal)
}

// treeCPU returns the CPU time of a process and its descendants. A child that ended
// counts once its parent has waited for it.
func treeCPU(root int) (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	parents, used := map[int]int{}, map[int]time.Duration{}
	for _, file := range files {
		pid, parent, cpu, err := readStat(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		parents[pid], used[pid] = parent, cpu
	}
	var total time.Duration
	for pid := range parents {
		for at := pid; at != 0; at = parents[at] {
			if at == root {
				total += used[pid]
				break
			}
		}
	}
	return total, nil
}

// readStat reads a /proc/PID/stat: the CPU time of the process and of the children that
// it has waited for.
func readStat(file string) (pid, parent int, cpu time.Duration, err error) {
	b, err := os.ReadFile(file) //nolint:gosec // a file of /proc
	if err != nil {
		return 0, 0, 0, err
	}
	// The second field is the program's name in brackets. It may contain spaces, so read
	// the fields after it.
	name := strings.LastIndexByte(string(b), ')')
	fields := strings.Fields(string(b[name+1:]))
	const parentAt, user, system, childUser, childSystem = 1, 11, 12, 13, 14 // of proc(5), counted from the state
	if name < 0 || len(fields) <= childSystem {
		return 0, 0, 0, fmt.Errorf("read %s: %q", file, b)
	}
	pid, err = strconv.Atoi(filepath.Base(filepath.Dir(file)))
	if err != nil {
		return 0, 0, 0, err
	}
	if parent, err = strconv.Atoi(fields[parentAt]); err != nil {
		return 0, 0, 0, fmt.Errorf("read %s: %w", file, err)
	}
	cpu, err = ticks(fields, user, system, childUser, childSystem)
	return pid, parent, cpu, err
}

// ticks returns the sum of some fields that count ticks.
func ticks(fields []string, at ...int) (time.Duration, error) {
	var sum int64
	for _, i := range at {
		if i >= len(fields) {
			return 0, fmt.Errorf("no field %d in %q", i, fields)
		}
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * clockTick, nil
}
