// Package ratelog limits how fast a log grows while a problem lasts. It writes the first
// line of a kind at once, then one line a minute with the number of lines left out.
package ratelog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// interval is the time between two lines of one kind while the problem lasts.
const interval = time.Minute

// Logger is one kind of log line that may occur as often as there are tasks. It writes
// the first line at once. While more lines come, it writes the newest once a minute, with
// the number of lines left out as "more". So a log shows when a problem began, what it
// looks like and how large it is, and stays small. It is safe for concurrent use.
type Logger struct {
	log     *slog.Logger
	level   slog.Level
	message string

	mu    sync.Mutex
	quiet bool // a line was written within the last interval
	held  []any
	more  int // lines held back, the newest included
}

// New returns a Logger that logs a constant message at a level.
func New(log *slog.Logger, level slog.Level, message string) *Logger {
	return &Logger{log: log, level: level, message: message}
}

// Log logs the message with these attributes, or counts it for the next line.
func (l *Logger) Log(ctx context.Context, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quiet {
		l.held = args
		l.more++
		return
	}
	l.write(ctx, args)
}

// write writes a line and begins an interval; l.mu is held.
func (l *Logger) write(ctx context.Context, args []any) {
	l.quiet = true
	l.log.Log(ctx, l.level, l.message, args...) //nolint:sloglint // the message is a constant of New's caller
	time.AfterFunc(interval, l.writeHeld)
}

// writeHeld ends an interval. It writes the newest line held back, if there is one.
func (l *Logger) writeHeld() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == 0 {
		l.quiet = false
		return
	}
	args := append(l.held[:len(l.held):len(l.held)], "more", l.more-1)
	l.held, l.more = nil, 0
	l.write(context.Background(), args)
}
