package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// typed is call for a line that ends at the shell's cursor.
func (o *operator) typed(args []string) (code int, text string) {
	o.t.Helper()
	var out bytes.Buffer
	code = run(o.t.Context(), args, &out, io.Discard)
	return code, out.String()
}

// TestShellsCompleteStatesAndSettings: shells complete --state, and the keys and values
// that `topic set` and `topic create` take.
func TestShellsCompleteStatesAndSettings(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.serve("orders", 1)
	for line, want := range map[string]string{
		"tasks ls --state ":           "waiting leased parked retrying :4",
		"topic set ":                  "orders :4",
		"topic set orders de":         "declare.type= declare.queue= declare.queue_type= declare.dead_letter= :6",
		"topic set orders rate=5 bat": "batch= :6",
		"topic set orders rate=5 ra":  ":6", // it is given already
		"topic set orders paused=":    "paused=true paused=false :4",
		"topic set orders declare.type=": "declare.type=direct declare.type=topic declare.type=fanout " +
			"declare.type=headers :4",
		"topic create orders shar": "shards= :6",
		"topic get orders ":        ":4",
	} {
		_, text := o.typed(append([]string{"__completeNoDesc", "--config", o.config}, strings.Split(line, " ")...))
		if got := strings.Join(strings.Fields(text), " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
	if code, text := o.typed([]string{"__completeNoDesc", "--config", o.config, "topic", "set", "orders",
		""}); code != cli.Done || !strings.HasPrefix(text, "shards=\nexchange=\n") {
		t.Errorf("code %d: %s", code, text)
	}
}

// TestReference: docs/reference holds the help of every verb, so a changed flag changes
// the page.
func TestReference(t *testing.T) {
	t.Parallel()
	const anew = "go test ./cmd/scanner -run TestReference -update"
	page, err := cli.Reference(rootCommand(), anew)
	if err != nil {
		t.Fatal(err)
	}
	check.Golden(t, filepath.Join("..", "..", "docs", "reference", "scanner.md"), string(page), anew)
}
