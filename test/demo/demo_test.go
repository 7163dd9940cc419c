package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestTheDemoHasAConsole: with -keep, the demo prints the address of a console that shows its
// fleet. Ctrl-C ends both.
func TestTheDemoHasAConsole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin")+"/", "./cmd/scanner",
		"./cmd/producer", "./test/demo")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("bin/demo", "-keep", "-tasks", "100", "-over", "100ms")
	cmd.Dir = dir
	var printed check.Log
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	check.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	var at string
	check.Until(t, "the demo to print the console's address", func() bool {
		if found := regexp.MustCompile(`(?m)^console +(http://\S+)$`).FindStringSubmatch(printed.String()); found != nil {
			at = found[1]
		}
		return at != ""
	})
	resp, err := http.Get(at)
	check.OK(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	check.OK(t, err)
	for _, part := range []string{`id="topic-orders"`, `<span class="of">3 live</span>`} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
	check.OK(t, cmd.Process.Signal(os.Interrupt))
	check.OK(t, check.Receive(t, "the end of the demo", ended))
	if _, err := http.Get(at); err == nil { //nolint:bodyclose // nobody answers
		t.Error("the console still answers")
	}
}
