package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
)

// TestReference: docs/reference has what the help of every verb says: who changes a flag
// changes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	const anew = "go test ./cmd/scanner -run TestReference -update"
	page, err := cli.Reference(rootCommand(), anew)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "docs", "reference", "scanner.md")
	if *update {
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != string(page) {
		t.Errorf("%s is not what the commands say: %s\n%s", path, anew, page)
	}
}
