package scanner

import (
	"log/slog"

	"github.com/duefleet/duefleet/internal/notice"
)

// notices are the kinds of lines of a topic that there may be one of for each task.
type notices struct {
	parked, refused, skipped, broken, unsettled, moving *notice.Notice
}

func newNotices(log *slog.Logger) notices {
	return notices{
		parked:    notice.New(log, slog.LevelError, "task parked"),
		refused:   notice.New(log, slog.LevelWarn, "task not taken by the broker, to be tried again"),
		skipped:   notice.New(log, slog.LevelError, "tasks left alone: no record, or one of a newer format"),
		broken:    notice.New(log, slog.LevelError, "task with a broken record parked"),
		unsettled: notice.New(log, slog.LevelWarn, "redis not told of outcomes, trying again"),
		moving:    notice.New(log, slog.LevelWarn, "moving stopped for this tick"),
	}
}
