package main

import (
	"path/filepath"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/goldenfile"
)

// TestReference: docs/reference holds the help of every verb, so a changed flag changes
// the page.
func TestReference(t *testing.T) {
	t.Parallel()
	const anew = "go test ./cmd/producer -run TestReference -update"
	page, err := cli.Reference(rootCommand(), anew)
	if err != nil {
		t.Fatal(err)
	}
	goldenfile.Check(t, filepath.Join("..", "..", "docs", "reference", "producer.md"), string(page), anew)
}
