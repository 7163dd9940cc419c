package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/doctor"
)

// TestManyFindingsOfOneKindAreCounted: the table shows three, and JSON all.
func TestManyFindingsOfOneKindAreCounted(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	const bad, unreadable = 1000, 7
	documents := map[string]string{}
	for i := range bad {
		documents[fmt.Sprintf("bad %03d", i)] = "{}"
	}
	for i := range unreadable {
		documents[fmt.Sprintf("unreadable-%d", i)] = "shards: ["
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(documents)), 60) { // Consul takes 64 in one transaction
		some := map[string]string{}
		for _, name := range chunk {
			some[name] = documents[name]
		}
		o.puts(some)
	}
	findings, _ := o.examined()
	broken := 0
	for _, f := range findings {
		if f.State == doctor.Fail && strings.HasSuffix(f.Check, " document") {
			broken++
		}
	}
	if broken != bad+unreadable {
		t.Errorf("JSON has %d findings, want %d", broken, bad+unreadable)
	}
	code, text := o.call("doctor")
	if code != cli.Failed || strings.Count(text, " document ") != 4 || !strings.Contains(text, "1004 more like these: "+
		"topics bad 003, bad 004, bad 005, bad 006, bad 007 and 999 more; -o json shows all") {
		t.Errorf("code %d: %.4000s", code, text)
	}
}
