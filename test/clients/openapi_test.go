//go:build clients

package clients_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestGeneratedClients: a linter finds nothing in the description of `producer serve`. Clients
// in TypeScript and Python are generated from it, and work against the server.
func TestGeneratedClients(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	r := fixture.New(t)
	r.Serve(t, 3)
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	const verbs = "schedule, get, reschedule, cancel"
	text := fmt.Sprintf("clients: [{name: shop, sha256: [%x], topics: [orders], verbs: [%s]}]",
		sha256.Sum256([]byte(token)), verbs)
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log check.Log
	const free = "127.0.0.1:0"
	args := []string{"serve", "--listen", free, "--admin-listen", free, "--tokens", tokens}
	server := exec.CommandContext(t.Context(), binaries.Producer, args...) //nolint:gosec // our own program
	server.Env = append(os.Environ(), "DUEFLEET_REDIS_ADDRS="+r.Addr, "DUEFLEET_REDIS_PREFIX="+r.Prefix)
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	address := regexp.MustCompile(`msg=serving listen=(\S+)`)
	check.Until(t, "the server", func() bool { return address.MatchString(log.String()) })
	url := "http://" + address.FindStringSubmatch(log.String())[1]
	for _, command := range [][]string{
		{"npm", "run", "-s", "lint"}, {"npm", "run", "-s", "generate"}, {"npm", "run", "-s", "check"},
		{"node", "node_modules/.generated/orders.mjs"},
		{"npm", "run", "-s", "generate-python"}, {"/usr/bin/python3", "orders.py"},
	} {
		cmd := exec.CommandContext(check.Context(t), command[0], command[1:]...) //nolint:gosec // our own programs
		cmd.Dir = "openapi"
		cmd.Env = append(os.Environ(), "URL="+url, "TOKEN="+token)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}
