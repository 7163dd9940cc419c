package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
)

// TestAParkedTaskSaysWhenItWasDueFirst: in both forms, and not where its record is damaged.
func TestAParkedTaskSaysWhenItWasDueFirst(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(admin.NewParkedLine(parkedRecord("o-1", 1796119200000, 2, "why")))
	want := `"due":"2026-12-01T10:00:00.000Z","due_ms":1796119200000,` +
		`"first_due":"2026-12-01T09:00:00.000Z","first_due_ms":1796115600000,`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("got %s, %v; want in it %s", text, err, want)
	}
	text, err = json.Marshal(admin.NewParkedLine(damaged))
	if err != nil || strings.Contains(string(text), "first_due") {
		t.Errorf("of a damaged record: %s, %v", text, err)
	}
}
