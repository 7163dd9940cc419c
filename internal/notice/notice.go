// Package notice limits how fast a log grows while a problem lasts. It writes the first
// line of a kind at once, then one line a minute with the number of lines left out.
package notice

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// interval is the time between two lines of one kind while the problem lasts.
const interval = time.Minute

// Notice is one kind of log line that may occur as often as there are tasks. It writes
// the first line at once. While more lines come, it writes the newest once a minute, with
// the number of lines left out as "more". So a log shows when a problem began, what it
// looks like and how large it is, and stays small. It is safe for concurrent use.
type Notice struct {
	log     *slog.Logger
	level   slog.Level
	message string

	mu    sync.Mutex
	quiet bool // a line was written within the last interval
	held  []any
	more  int // lines held back, the newest included
}

// New returns a Notice that logs a constant message at a level.
func New(log *slog.Logger, level slog.Level, message string) *Notice {
	return &Notice{log: log, level: level, message: message}
}

// Say logs the message with these attributes, or counts it for the next line.
func (n *Notice) Say(ctx context.Context, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.quiet {
		n.held = args
		n.more++
		return
	}
	n.write(ctx, args)
}

// write writes a line and begins an interval; n.mu is held.
func (n *Notice) write(ctx context.Context, args []any) {
	n.quiet = true
	n.log.Log(ctx, n.level, n.message, args...) //nolint:sloglint // the message is a constant of New's caller
	time.AfterFunc(interval, n.tell)
}

// tell ends an interval. It writes the newest line held back, if there is one.
func (n *Notice) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.more == 0 {
		n.quiet = false
		return
	}
	args := append(n.held[:len(n.held):len(n.held)], "more", n.more-1)
	n.held, n.more = nil, 0
	n.write(context.Background(), args)
}
