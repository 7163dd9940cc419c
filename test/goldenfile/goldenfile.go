// Package goldenfile holds what programs print to files that people have read.
package goldenfile

import (
	"os"
	"testing"
)

// Check holds got to the file at path, which is written first if anew is set. The failure
// of a test names the command by which it is written, how.
func Check(t testing.TB, path, got string, anew bool, how string) {
	t.Helper()
	if anew {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; %s makes it", err, how)
	}
	if got != string(want) {
		t.Errorf("got\n%s\n%s has\n%s\nif what is new is better: %s", got, path, want, how)
	}
}
