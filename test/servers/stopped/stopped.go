// Package stopped tells when SIGSTOP has taken effect. The kernel returns from kill
// before that, and each thread runs on until it is scheduled next. On a busy machine that
// took up to 212 ms, and a server answered meanwhile.
package stopped

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

const (
	askEvery = time.Millisecond
	limit    = 30 * time.Second
)

// Await returns once each thread of a process group has stopped, or after 30 s with an
// error. Where there is no /proc, or if the group is 0, it returns at once.
func Await(group int) error {
	fs, err := procfs.NewDefaultFS()
	if err != nil || group == 0 {
		return nil //nolint:nilerr // not Linux
	}
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(askEvery) {
		runs, err := running(fs, group)
		if err != nil || !runs {
			return err
		}
	}
	return errors.New("a thread runs on after SIGSTOP")
}

// running reports whether a thread of the group runs, or would run if it had something to
// do. A thread that ended meanwhile doesn't.
func running(fs procfs.FS, group int) (bool, error) {
	processes, err := fs.AllProcs()
	if err != nil {
		return false, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		if stat, err := p.Stat(); err != nil || stat.PGRP != group {
			continue
		}
		threads, err := fs.AllThreads(p.PID)
		if err != nil {
			continue
		}
		for _, thread := range threads {
			stat, err := thread.Stat()
			if err == nil && stat.State != "T" && stat.State != "Z" && stat.State != "X" {
				return true, nil
			}
		}
	}
	return false, nil
}
