package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes lines to w. The level is debug, info, warn or
// error and the format text or json, as in the configuration's log section. For anything
// else the error names the choices. Both formats write durations as in 1.5s.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	lowest, err := logLevel(level)
	if err != nil {
		return nil, err
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: lowest})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: lowest, ReplaceAttr: spellDuration})), nil
	}
	return nil, fmt.Errorf("log.format %q: must be text or json", format)
}

func logLevel(level string) (slog.Level, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError}
	if found, there := levels[level]; there {
		return found, nil
	}
	return 0, fmt.Errorf("log.level %q: must be debug, info, warn or error", level)
}

// spellDuration writes durations with their unit; JSON would show plain nanoseconds.
func spellDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
