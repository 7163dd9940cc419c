package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
)

// reports limits the log lines about tasks: for each topic and message to one a minute,
// with the number of lines left out.
type reports struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[kind]*ratelog.Logger
}

type kind struct{ topic, message string }

func (r *reports) of(topic string, level slog.Level, message string) *ratelog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := kind{topic, message}
	if r.kinds[k] == nil {
		r.kinds[k] = ratelog.New(r.log, level, message)
	}
	return r.kinds[k]
}

// say logs a constant message about a task, with more attributes.
func (c *Consumer) say(ctx context.Context, t *task.Task, level slog.Level, message string, more ...any) {
	c.reports.of(t.Topic, level, message).Log(ctx,
		append([]any{"topic", t.Topic, "id", t.ID, "attempt", t.Attempt}, more...)...)
}

// report logs every result but a plain success. stored is false if a newer version of the
// task prevented what was to follow.
func (c *Consumer) report(ctx context.Context, t *task.Task, r result, stored bool) {
	if r.became == done {
		if !stored {
			c.say(ctx, t, slog.LevelInfo, "next step not stored: the task was cancelled or replaced")
		}
		return
	}
	level, message := r.became.line()
	c.say(ctx, t, level, message, "reason", reasonOf(r.cause))
}

// line returns how to log the outcome of a failed task.
func (o outcome) line() (level slog.Level, message string) {
	switch o {
	case park:
		return slog.LevelError, "task parked"
	case drop:
		return slog.LevelWarn, "task dropped by its handler"
	case superseded:
		return slog.LevelWarn, "handler failed, no retry: the task was cancelled or replaced"
	case postponed:
		return slog.LevelInfo, "handler asked for later, task is delivered again"
	case removed:
		return slog.LevelError, "topic was removed, task is not stored again"
	}
	return slog.LevelWarn, "handler failed, task is tried again"
}

// reasonOf returns the text of a cause; "" for the next step of a removed topic.
func reasonOf(cause error) string {
	if cause == nil {
		return ""
	}
	return cause.Error()
}

// tellParked calls Config.OnParked, if it is set.
func (c *Consumer) tellParked(work context.Context, t *task.Task, cause error) {
	if c.cfg.OnParked == nil {
		return
	}
	ctx, cancel := context.WithTimeout(tracing.Extract(work, t), c.cfg.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			c.say(ctx, t, slog.LevelError, "OnParked panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	c.cfg.OnParked(ctx, *t, cause)
}
