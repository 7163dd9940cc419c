package main

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	t.Parallel()
	before := counts{Files: 1, Lines: 1234567, Tests: 1234567, Packages: map[string]size{"task": {1, 999}}}
	now := counts{Files: 2, Lines: 100, Tests: 50, Packages: map[string]size{"internal/shard": {2, 1000}},
		Walks: map[string]walk{"schedule": {Files: []string{"a.go", "b.go"}, Functions: 7, Depth: 5},
			"due task": {Files: []string{"a.go", "b.go"}, Idle: []string{"a.go"}}}}
	got := tables([]counts{before, now})
	for _, line := range []string{
		"| what | before | now |\n|---|---|---|\n",
		"| files of the product | 1 | 2 |",
		"| lines of the product | 1,234,567 | 100 |",
		"| tests : code | 1.00 | 0.50 |",
		"| schedule: files | - | 2 |",
		"| schedule: functions | - | 7 |",
		"| schedule: depth | - | 5 |",
		"| due task: files | - | 2, 1 of them also idle |",
		"| package | files; lines before | files; lines now |",
		"| `internal/shard` | - | 2; 1,000 |",
		"| task | 1; 999 | - |",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	if got := tables([]counts{now}); !strings.Contains(got, "| what | now |\n|---|---|\n| files of the product | 2 |\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	got, err := replaced("a\n"+beginMark+"old\n"+endMark+"z\n", "new\n")
	if want := "a\n" + beginMark + "\nnew\n\n" + endMark + "z\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if again, err := replaced(got, "new\n"); err != nil || again != got {
		t.Errorf("the second time: got %q, %v", again, err)
	}
	if _, err := replaced("a\n"+endMark+beginMark, "new\n"); err == nil {
		t.Error("no error without marks in their order")
	}
}
