package connect

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"

	"github.com/duefleet/duefleet/internal/config"
)

// fresh is a value that is read from files, and again when their content changes. If the
// files can't be used, the last good value stays in use. It is safe for concurrent use.
type fresh[T any] struct {
	// key is the setting's key, for the log.
	key   string
	files []string
	// read makes the value from the current files.
	read func() (T, error)
	log  *slog.Logger

	mu     sync.Mutex
	value  T
	state  string // content that value was made from; "" before the first get
	broken bool   // the files can't be used, and the log says so
}

// newFresh reads the files and returns their fresh value, or the error of the first
// reading.
func newFresh[T any](key string, files []string, read func() (T, error), log *slog.Logger) (*fresh[T], error) {
	value, err := read()
	if err != nil {
		return nil, err
	}
	return freshFrom(value, key, files, read, log), nil
}

// freshFrom is newFresh for files that are already read.
func freshFrom[T any](value T, key string, files []string, read func() (T, error), log *slog.Logger) *fresh[T] {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &fresh[T]{key: key, files: files, read: read, log: log, value: value}
}

// get checks the files and returns the value.
func (f *fresh[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	state, err := contentOf(f.files)
	if err == nil && state != f.state {
		err = f.take(state)
	}
	switch {
	case err != nil && !f.broken:
		f.log.Warn("file can't be used, its last good content stays in use", "key", f.key, "error", err) //nolint:sloglint // go-redis and net/http ask without a context
	case err == nil && f.broken:
		f.log.Info("file can be used again", "key", f.key) //nolint:sloglint // as above
	}
	f.broken = err != nil
	return f.value
}

// take makes the value from files with new content.
func (f *fresh[T]) take(state string) error {
	value, err := f.read()
	if err != nil {
		return err
	}
	if f.state != "" {
		f.log.Info("file has changed, new connections use it", "key", f.key) //nolint:sloglint // as in get
	}
	f.value, f.state = value, state
	return nil
}

// contentOf identifies the content of files.
func contentOf(files []string) (string, error) {
	all := sha256.New()
	for _, path := range files {
		content, err := config.ReadRegular(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%d\n%s", len(content), content)
	}
	return string(all.Sum(nil)), nil
}
