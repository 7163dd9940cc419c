// Package goldenfile compares the output of programs with reviewed files.
package goldenfile

import (
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// Check compares got with the file at path. If update is true, it first writes got to
// that file. The failure message shows how, the command that rewrites the file.
func Check(t testing.TB, path, got string, update bool, how string) {
	t.Helper()
	if update {
		check.OK(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; create it with: %s", err, how)
	}
	if got != string(want) {
		t.Errorf("got\n%s\n%s has\n%s\nif the new text is better, run: %s", got, path, want, how)
	}
}
