package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// sources are files with known counts, by path.
func sources() map[string]string {
	return map[string]string{
		"task/task.go": "package task\n\nfunc short() {\n}\n\nfunc long() {\n" +
			strings.Repeat("\tshort()\n", 59) + "}\n",
		"internal/conform/kit.go": "package conform\n",
		"internal/shard/shard.go": "package shard\n\ntype Shard struct{}\n\nfunc (s *Shard) Put(v any) {\n" +
			"\tn, _ := v.(int)\n\tm, _ := v.(int)\n\ts.put(n, m)\n}\n\n" +
			"func (s *Shard) put(int, int) {}\n\nconst Most, least = 2, 1\n",
		"internal/shard/shard_test.go":   "package shard\n\nfunc TestPut() {\n}\n\nfunc helper() {\n}\n",
		"test/fixture/fixture.go":        "package fixture\n\nvar x = 1\n",
		"test/conform/kit.go":            "package conform\n",
		"node_modules/other/internal.go": "not Go",
	}
}

func TestCountSource(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range sources() {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := countSource(root)
	want := counts{
		Files: 2, Lines: 79, Median: 5, P90: 61, Long: 1, Longest: 66, LongestFile: "task/task.go",
		Tests: 7, Helpers: 2 + 3, Untyped: 2, Exported: 3,
		Packages: map[string]size{"task": {1, 66}, "internal/shard": {1, 13}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// TestCountSourceReportsBrokenFiles: a file that isn't Go is an error, not a smaller count.
func TestCountSourceReportsBrokenFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("pack age"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := countSource(root); err == nil {
		t.Errorf("got %+v", c)
	}
}
