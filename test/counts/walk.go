package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// walk holds the code that one operation executes.
type walk struct {
	// Files are the product's files with executed code. A fleet without work executes Idle
	// of them, too.
	Files []string `json:"files"`
	Idle  []string `json:"idle,omitempty"`
	// Functions is how many of the product's functions were executed.
	Functions int `json:"functions"`
	// Depth is the largest number of the product's functions on the stack where a script
	// was sent. A goroutine that waits for another adds its own.
	Depth int `json:"depth"`
}

// measured is the output of the program in walk for one operation.
type measured struct {
	Depth int `json:"depth"`
}

const module = "github.com/duefleet/duefleet/"

// runWalks builds the program in walk with coverage, runs it, and reads what it executed.
func runWalks(ctx context.Context, root string) (map[string]walk, error) {
	dir, err := os.MkdirTemp("", "counts-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "walk")
	build := exec.CommandContext(ctx, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=./...", "-o", program,
		"./test/counts/walk")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the program that walks: %w", err)
	}
	run := exec.CommandContext(ctx, program, dir) //nolint:gosec // built above
	run.Env, run.Stderr = append(os.Environ(), "GOCOVERDIR="+dir), os.Stderr
	out, err := run.Output()
	if err != nil {
		return nil, fmt.Errorf("walk: %w", err)
	}
	depths := map[string]measured{}
	if err := json.Unmarshal(out, &depths); err != nil {
		return nil, fmt.Errorf("walk printed %q: %w", out, err)
	}
	return readWalks(ctx, dir, depths)
}

// readWalks reads the executed code of each operation.
func readWalks(ctx context.Context, dir string, depths map[string]measured) (map[string]walk, error) {
	walks := map[string]walk{}
	idle, err := executed(ctx, filepath.Join(dir, "idle"))
	if err != nil {
		return nil, err
	}
	for name, m := range depths {
		w, err := executed(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		w.Depth = m.Depth
		if !strings.HasSuffix(name, "schedule") { // no scanner runs then
			for _, f := range w.Files {
				if slices.Contains(idle.Files, f) {
					w.Idle = append(w.Idle, f)
				}
			}
		}
		walks[name] = w
	}
	return walks, nil
}

// executed reads the coverage that an operation left in a folder.
func executed(ctx context.Context, dir string) (walk, error) {
	out, err := exec.CommandContext(ctx, "go", "tool", "covdata", "func", "-i="+dir).Output() //nolint:gosec // made above
	if err != nil {
		return walk{}, fmt.Errorf("read coverage of %s: %w", filepath.Base(dir), err)
	}
	return parseFunctions(string(out)), nil
}

// parseFunctions reads lines such as "path/file.go:12:	name		85.7%". A line with 0.0% was
// not executed.
func parseFunctions(text string) (w walk) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] == "0.0%" {
			continue
		}
		path, _, _ := strings.Cut(fields[0], ":")
		path = strings.TrimPrefix(path, module)
		if !product(path) {
			continue
		}
		w.Functions++
		if !slices.Contains(w.Files, path) {
			w.Files = append(w.Files, path)
		}
	}
	slices.Sort(w.Files)
	return w
}
