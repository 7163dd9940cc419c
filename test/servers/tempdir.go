package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TempDir makes a folder for this process, named after a purpose, as in "run". It removes
// folders that ended processes left behind for the same purpose, with their logs. So logs
// are kept until the next run.
//
// A process locks its folder until it ends. Process IDs would not do: in another container
// that shares the folder for temporary files they mean other processes.
func TempDir(purpose string) (string, error) {
	prefix := "duefleet-" + purpose + "-"
	old, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		if unlock, err := lock(dir, syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(dir)
			unlock()
		}
	}
	for {
		dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
		if err != nil {
			return "", err
		}
		unlock, err := lock(dir, 0)
		if err == nil {
			_, err = os.Stat(dir)
		}
		if errors.Is(err, fs.ErrNotExist) { // another process removed it before it was locked
			unlock()
			continue
		}
		return dir, err
	}
}

// lock locks a folder until unlock is called or this process ends; how is 0 or LOCK_NB.
// Processes that this one starts don't hold the lock.
func lock(dir string, how int) (unlock func(), err error) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return func() {}, err
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|how); err != nil {
		return func() {}, errors.Join(err, syscall.Close(fd))
	}
	return func() { _ = syscall.Close(fd) }, nil
}
