package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesNameTheirTests: each promise of docs/guarantees.md names at
// least one test, and all it names exist.
func TestGuaranteesNameTheirTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tests := testNames(t, root)
	page, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.Contains(line, "held by") {
			continue
		}
		promises++
		named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("no test holds %q", cells[1])
		}
		for _, name := range named {
			if !tests[name[1]] {
				t.Errorf("there is no %s, which is to hold %q", name[1], cells[1])
			}
		}
	}
	if promises < 7 {
		t.Errorf("found %d promises in the table, want those of the README at least", promises)
	}
}

// testNames are those of all tests below root.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			if e != nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
				return filepath.SkipDir
			}
			return err
		}
		source, err := os.ReadFile(path) //nolint:gosec // a file of ours
		for _, name := range declared.FindAllStringSubmatch(string(source), -1) {
			names[name[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
