package shard

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the scripts in docs/protocol")

// The scripts that a producer in another language sends.
func TestTheScriptsInDocsAreThoseThatRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"put", "delete", "reschedule", "touch", "read", "note"} {
		path := filepath.Join("..", "..", "docs", "protocol", name+".lua")
		text, err := Script(name)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(doc) != text {
			t.Errorf("%s is not what runs: go test ./internal/shard -run %s -update", path, t.Name())
		}
	}
}
