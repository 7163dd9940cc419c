package scanner

import (
	"log/slog"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// notices are the kinds of lines of a topic that there may be one of for each task.
type notices struct {
	parked, refused, skipped, broken, unsettled, moving *telemetry.Notice
}

func newNotices(log *slog.Logger) notices {
	return notices{
		parked:    telemetry.NewNotice(log, slog.LevelError, "task parked"),
		refused:   telemetry.NewNotice(log, slog.LevelWarn, "task not taken by the broker, to be tried again"),
		skipped:   telemetry.NewNotice(log, slog.LevelError, "tasks left alone: no record, or one of a newer format"),
		broken:    telemetry.NewNotice(log, slog.LevelError, "task with a broken record parked"),
		unsettled: telemetry.NewNotice(log, slog.LevelWarn, "redis not told of outcomes, trying again"),
		moving:    telemetry.NewNotice(log, slog.LevelWarn, "moving stopped for this tick"),
	}
}
