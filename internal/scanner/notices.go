package scanner

import (
	"log/slog"

	"github.com/duefleet/duefleet/internal/notice"
)

// notices are a topic's kinds of log lines that may occur once per task.
type notices struct {
	parked, refused, broken, unsettled *notice.Notice

	skipped *unreadable // also counts
}

func newNotices(log *slog.Logger) notices {
	return notices{
		parked:    notice.New(log, slog.LevelError, "task parked"),
		refused:   notice.New(log, slog.LevelWarn, "task not accepted by the broker, to be tried again"),
		skipped:   newUnreadable(notice.New(log, slog.LevelError, "tasks left alone: no record, or one of a newer format")),
		broken:    notice.New(log, slog.LevelError, "task with a broken record parked"),
		unsettled: notice.New(log, slog.LevelWarn, "outcomes not written to redis, trying again"),
	}
}
