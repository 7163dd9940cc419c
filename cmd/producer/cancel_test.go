package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cancelMany runs the verb over IDs and returns its summary as well.
func (c *sandbox) cancelMany(input io.Reader, args ...string) (result, map[string]any) {
	c.t.Helper()
	args = append([]string{"cancel", "--topic", "orders", "--file", "-", "-o", "json"}, args...)
	cmd := command(c.t, nil, c.args(args...)...)
	read := &counted{Reader: input}
	cmd.Stdin = read
	r := finishCounting(c.t, cmd, func() int { return int(read.bytes.Load()) - c.stored() })
	return r, decodeOne(c.t, r.stdout)
}

// TestCancelMany: cancel removes exactly the tasks of thousands of given IDs. IDs without
// a task are no failure.
func TestCancelMany(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const n = 3000
	c.load(lines(n, func(i int) string { return fmt.Sprintf(`{"id":"o-%d","in":"1h"}`, i) }))
	r, sum := c.cancelMany(lines(n, func(i int) string { return fmt.Sprintf("o-%d\r", 2*i) }))
	wantCounts(t, sum, fmt.Sprintf("lines=%d cancelled=%d not_found=%d failed=0 safe_line=%d", n, n/2, n/2, n))
	if r.code != 0 || r.stderr != "" {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	there := c.ids()
	for i := range n {
		if id := fmt.Sprint("o-", i); there[id] != (i%2 == 1) {
			t.Fatalf("%s: there %t", id, there[id])
		}
	}
	_, sum = c.cancelMany(strings.NewReader("o-1\no-1\n"))
	wantCounts(t, sum, "lines=2 cancelled=1 not_found=1 failed=0")
}

// TestCancelManyFile: a file is read like a pipe, and the summary is for people. A line is
// an ID, or a JSON string that holds one.
func TestCancelManyFile(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	for _, id := range []string{" a b", `"q"`, "ü", "last"} {
		c.must("schedule", "--topic", "orders", "--id", id, "--in", "1h")
	}
	file := writeFile(t, "ids", " a b\n\n\"\\\"q\\\"\"\r\nü\n  \na b\nlast")
	r := c.run("", "cancel", "--topic", "orders", "--file", file)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "5 IDs: 4 cancelled, 1 not found, 0 failed in ") || r.stderr != "" ||
		c.stored() != 0 {
		t.Errorf("exit code %d, %d tasks are stored: %s%s", r.code, c.stored(), r.stdout, r.stderr)
	}
	wantError(t, c.run("", "cancel", "--topic", "orders", "--file", file+"x"), 1, "no such file")
	wantError(t, c.run("", "cancel", "--topic", "mails", "--file", file), 1,
		"cancel mails: stopped; nothing is known to be cancelled: ")
	wantError(t, c.run("", "cancel", "--topic", "a b", "--file", file), 1, "topic: must be 1 to 64")
}

// TestCancelManyBadLines: an ID that breaks a rule is reported with its line, counted
// as failed, and keeps no other from being cancelled.
func TestCancelManyBadLines(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--in", "1h")
	all := filepath.Join(t.TempDir(), "bad.txt")
	r, sum := c.cancelMany(strings.NewReader(strings.Repeat("x", 256)+"\n\xff\xff\nnone\no-1\n\"cut\n"), "--errors", all)
	wantCounts(t, sum, "lines=5 cancelled=1 not_found=1 failed=3 safe_line=5")
	told := "line 1: id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes\nline 2: id: must be 1 to 255 bytes of " +
		"valid UTF-8; got 2 bytes that are not valid UTF-8\nline 5: it begins with a double quote, and is no JSON string\n"
	want := "producer: " + strings.ReplaceAll(told, "\nline", "\nproducer: line") +
		"producer: cancel orders: 3 of 5 lines are bad; all others are cancelled or were not found\n"
	if r.code != 1 || r.stderr != want || c.stored() != 0 {
		t.Errorf("exit code %d, %d tasks are stored:\n%swant\n%s", r.code, c.stored(), r.stderr, want)
	}
	if text, err := os.ReadFile(all); err != nil || string(text) != told {
		t.Errorf("--errors has %q: %v", text, err)
	}
}

// TestCancelTakesOnlyTheIDsOfTheFile: a byte order mark belongs to no ID, and half a surrogate
// pair isn't taken for the character that replaces it elsewhere.
func TestCancelTakesOnlyTheIDsOfTheFile(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.load(strings.NewReader("\ufeff" + `{"id":"o-1","in":"1h"}` + "\n" + `{"id":"cut-\ufffd","in":"1h"}` + "\n"))
	r, sum := c.cancelMany(strings.NewReader("\ufeffo-1\r\n" + `"cut-\ud83d"` + "\n"))
	wantCounts(t, sum, "lines=2 cancelled=1 not_found=0 failed=1 safe_line=2")
	if !strings.Contains(r.stderr, "line 2: id: half a surrogate pair in a \\u escape stands for no character\n") {
		t.Errorf("standard error: %s", r.stderr)
	}
	if there := c.ids(); len(there) != 1 || !there["cut-\ufffd"] {
		t.Errorf("stored: %v", there)
	}
}

// TestCancelPrefix: --id-prefix cancels all tasks whose IDs begin with a text, once it is
// confirmed; without a terminal it needs --yes.
func TestCancelPrefix(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const n = 2500
	c.load(lines(n, func(i int) string { return fmt.Sprintf(`{"id":"a*\n\"%d","in":"1h"}`, i) }))
	c.load(lines(10, func(i int) string { return fmt.Sprintf(`{"id":"ab\n\"%d","in":"1h"}`, i) }))
	verb := []string{"cancel", "--topic", "orders", "--id-prefix", "a*\n\""}
	wantError(t, c.run("", verb...), 2, `cancel 2,500 tasks of topic orders whose IDs begin with "a*\n\"": without a terminal to ask on it needs --yes`)
	if c.stored() != n+10 {
		t.Fatalf("%d tasks are left", c.stored())
	}
	wantCounts(t, c.must(append(verb, "--yes")...), fmt.Sprintf("lines=%d cancelled=%d not_found=0 failed=0", n, n))
	if c.stored() != 10 {
		t.Errorf("%d tasks are left", c.stored())
	}
	wantCounts(t, c.must(append(verb, "--yes")...), "lines=0 cancelled=0 not_found=0 failed=0")
	wantError(t, c.run("", "cancel", "--topic", "mails", "--id-prefix", "a"), 1, "cancel mails: unknown topic")
	wantError(t, c.run("", "cancel", "--topic", "mails", "--id-prefix", "a", "--yes"), 1,
		"nothing is known to be cancelled: read line 1: unknown topic mails")
}
