package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuaranteesNameTheirTests: each promise in docs/guarantees.md names at least one
// test, and all named tests exist.
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
				t.Errorf("there is no %s, which should hold %q", name[1], cells[1])
			}
		}
	}
	if promises < 7 {
		t.Errorf("found %d promises in the table, want those of the README at least", promises)
	}
}

// TestReadmeMapsEveryFolder: README's map has each folder with code or text, or one of
// its parents. Every folder in the map exists.
func TestReadmeMapsEveryFolder(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Map\n")
	if !found {
		t.Fatal("README.md has no map")
	}
	mapped := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			mapped[strings.Trim(name, "`/")] = true
		}
	}
	for name := range mapped {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || !info.IsDir() {
			t.Errorf("the map has %s, which isn't a folder", name)
		}
	}
	for _, folder := range folders(t, root) {
		on := false
		for above := folder; above != "."; above = filepath.Dir(above) {
			on = on || mapped[filepath.ToSlash(above)]
		}
		if !on {
			t.Errorf("the map lacks %s", folder)
		}
	}
}

// folders returns the folders below root that have code or text, without hidden ones.
func folders(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e != nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
				return filepath.SkipDir
			}
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if folder != "." && slices.Contains([]string{".go", ".md", ".yaml", ".lua"}, filepath.Ext(path)) {
			all = append(all, folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 20 {
		t.Fatalf("found %d folders: some are missing", len(all))
	}
	return all
}

// testNames returns the names of all tests below root.
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
