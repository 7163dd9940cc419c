package scanner

import (
	"log/slog"

	"github.com/duefleet/duefleet/internal/ratelog"
)

// limitedLogs are a topic's kinds of log lines that may occur once per task.
type limitedLogs struct {
	parked, refused, broken, unsettled *ratelog.Logger

	skipped *unreadable // also counts
}

func newLimitedLogs(log *slog.Logger) limitedLogs {
	return limitedLogs{
		parked:    ratelog.New(log, slog.LevelError, "task parked"),
		refused:   ratelog.New(log, slog.LevelWarn, "task not accepted by the broker, to be tried again"),
		skipped:   newUnreadable(ratelog.New(log, slog.LevelError, "tasks left alone: no record, or one of a newer format")),
		broken:    ratelog.New(log, slog.LevelError, "task with a broken record parked"),
		unsettled: ratelog.New(log, slog.LevelWarn, "outcomes not written to redis, trying again"),
	}
}
