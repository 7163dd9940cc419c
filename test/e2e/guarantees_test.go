package e2e_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// promiseRow matches a row of a table in docs/guarantees.md: a promise's number and name,
// then the promise or the tests that check it.
var promiseRow = regexp.MustCompile(`(?m)^\| ([PC]\d+ [^|]+) \| (.*) \|$`)

// TestGuaranteesNameTheirTests: each promise of docs/guarantees.md names at least one test,
// and all tests that the page names exist.
func TestGuaranteesNameTheirTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tests := testNames(t, root)
	page, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	check.OK(t, err)
	promised, checked := map[string]bool{}, map[string]bool{}
	for _, row := range promiseRow.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(row[2], "`Test") {
			checked[row[1]] = true
		} else {
			promised[row[1]] = true
		}
	}
	if !maps.Equal(promised, checked) || len(promised) < 7 {
		t.Errorf("promises %v, checked %v", slices.Sorted(maps.Keys(promised)), slices.Sorted(maps.Keys(checked)))
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1) {
		if !tests[name[1]] {
			t.Errorf("there is no %s", name[1])
		}
	}
}

// TestTheMapHasEveryFolder: the map of docs/architecture.md names each folder with code
// or text, or a parent of it. Every folder of the map exists.
func TestTheMapHasEveryFolder(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	check.OK(t, err)
	_, section, found := strings.Cut(string(page), "\n## Map\n")
	if !found {
		t.Fatal("docs/architecture.md has no map")
	}
	mapped := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			mapped[strings.Trim(name, "`/")] = true
		}
	}
	for name := range mapped {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || !info.IsDir() {
			t.Errorf("the map has %s, which is no folder", name)
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

// folders returns the folders below root that hold code or text, except hidden ones.
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
	check.OK(t, err)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 20 {
		t.Fatalf("found only %d folders", len(all))
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
	check.OK(t, err)
	return names
}
