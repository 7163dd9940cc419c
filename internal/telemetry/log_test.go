package telemetry

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

func TestLoggerWritesFromItsLevelUp(t *testing.T) {
	t.Parallel()
	levels := []string{"debug", "info", "warn", "error"}
	for i, level := range levels {
		var out bytes.Buffer
		log, err := NewLogger(&out, level, "text")
		check.OK(t, err)
		log.DebugContext(t.Context(), "debug line")
		log.InfoContext(t.Context(), "info line")
		log.WarnContext(t.Context(), "warn line")
		log.ErrorContext(t.Context(), "error line")
		for j, other := range levels {
			if got := strings.Contains(out.String(), other+" line"); got != (j >= i) {
				t.Errorf("level %s: a line of level %s written: %t", level, other, got)
			}
		}
	}
}

func TestJSONLinesSpellDurations(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := NewLogger(&out, "info", "json")
	check.OK(t, err)
	log.InfoContext(t.Context(), "claimed", "took", 1500*time.Millisecond)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if line["msg"] != "claimed" || line["took"] != "1.5s" {
		t.Errorf("got %v", line)
	}
}

func TestWrongLogSettingsNameTheChoices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ level, format, want string }{
		{"loud", "text", `log.level "loud": must be debug, info, warn or error`},
		{"INFO", "text", `log.level "INFO": must be debug, info, warn or error`},
		{"info", "xml", `log.format "xml": must be text or json`},
	} {
		if _, err := NewLogger(&bytes.Buffer{}, c.level, c.format); err == nil || err.Error() != c.want {
			t.Errorf("%s, %s: got %v, want %s", c.level, c.format, err, c.want)
		}
	}
}
