// Package notice keeps a log from growing with a trouble: of lines of one kind the
// first is written at once, and then one a minute with how many there were.
package notice

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// interval is how often a trouble that goes on is logged.
const interval = time.Minute

// Notice is one kind of line in the log, of which there may be as many as there are
// tasks. The first is written at once; while there are more, the newest is written
// once a minute, with how many were left out beside it, as "more". So a log tells
// when a trouble began, what it looks like and how large it is, and doesn't grow with
// it. It may be used concurrently.
type Notice struct {
	log     *slog.Logger
	level   slog.Level
	message string

	mu    sync.Mutex
	quiet bool // a line was written within the last interval
	held  []any
	more  int // lines held back, the newest included
}

// New returns a kind of line: a constant message at a level.
func New(log *slog.Logger, level slog.Level, message string) *Notice {
	return &Notice{log: log, level: level, message: message}
}

// Say writes a line with these attributes, or counts it.
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
	n.log.Log(ctx, n.level, n.message, args...) //nolint:sloglint // a constant of whoever made the notice
	time.AfterFunc(interval, n.tell)
}

// tell writes the newest of the lines that were held back for an interval.
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
