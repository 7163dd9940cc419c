//go:build measure

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestMeasureLoadInBoundedMemory: a stream of 320 MB takes a fraction of that memory.
func TestMeasureLoadInBoundedMemory(t *testing.T) {
	const much = 20_000 * 16 << 10
	held(t, newSandbox(t).loadMuch(much), 160<<20)
}

// TestMeasureLoadAMillionLines: a million lines take no more memory than some thousands.
func TestMeasureLoadAMillionLines(t *testing.T) {
	const n = 1_000_000
	r, sum := newSandbox(t).load(lines(n, func(i int) string {
		return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%0200d"}`, i%muchIDs, i)
	}))
	wantCounts(t, sum, fmt.Sprintf("lines=%d scheduled=%d safe_line=%d", n, n, n))
	held(t, r, 64<<20)
	t.Logf("%v tasks a second", sum["rate"])
}

// held checks the peak memory of a load, in bytes.
func held(t *testing.T, r result, most int64) {
	t.Helper()
	if r.peak == 0 {
		t.Fatal("how much memory the load held is not known on this system")
	}
	if r.peak > most {
		t.Errorf("held %d MiB at its peak", r.peak>>20)
	}
	t.Logf("%d MiB at its peak", r.peak>>20)
}

// TestMeasureLoadPipe: a line is written within 50 ms of its arrival, even if more lines
// may follow. It measures the fastest line.
func TestMeasureLoadPipe(t *testing.T) {
	c := newSandbox(t)
	p := c.start("load")
	best := time.Hour
	for i := range 20 {
		brought := time.Now()
		fmt.Fprintf(p.input, `{"id":"o-%d","in":"1h"}`+"\n", i)
		check.Until(t, fmt.Sprintf("line %d", i+1), func() bool { return c.stored() == i+1 })
		best = min(best, time.Since(brought))
	}
	if best > 50*time.Millisecond {
		t.Errorf("the fastest line took %v", best)
	}
	p.input.Close()
	p.wait(t)
}

// TestMeasureExportInBoundedMemory: an export of 320 MB takes a fraction of that memory.
func TestMeasureExportInBoundedMemory(t *testing.T) {
	c := newSandbox(t)
	const n = 20_000
	payload := strings.Repeat("x", 16<<10)
	_, sum := c.load(lines(n, func(i int) string {
		return fmt.Sprintf(`{"id":"o-%d","in":"1h","payload":"%s"}`, i, payload)
	}))
	wantCounts(t, sum, fmt.Sprintf("scheduled=%d", n))
	r := c.run("", "export", "orders", "--file", filepath.Join(t.TempDir(), "orders.ndjson"), "-o", "json")
	sum = decodeOne(t, r.stdout)
	wantCounts(t, sum, fmt.Sprintf("tasks=%d failed=0", n))
	held(t, r, 64<<20)
	t.Logf("%v tasks a second", sum["rate"])
}
