package check

import (
	"flag"
	"os"
	"testing"
)

// Update is the flag -update of all tests with such files: they rewrite them.
var Update = flag.Bool("update", false, "rewrite the files that the tests compare with") //nolint:gochecknoglobals // a flag

// Golden compares got with the file at path. With Update, it first writes got to that file.
// The failure message shows how, the command that rewrites the file.
func Golden(t testing.TB, path, got, how string) {
	t.Helper()
	if *Update {
		OK(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; create it with: %s", err, how)
	}
	if got != string(want) {
		t.Errorf("got\n%s\n%s has\n%s\nif the new text is better, run: %s", got, path, want, how)
	}
}
