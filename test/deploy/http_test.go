package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// chartToken is the token of clients in these tests.
const chartToken = "0123456789abcdef0123456789abcdef"

// TestChartOfHTTPServes: the container's command serves with the chart's configuration and
// the files of its Secrets.
func TestChartOfHTTPServes(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	user := strings.ReplaceAll(r.Prefix, ":", "-")
	admit(t, r.Addr, user, "unit-secret")
	args := containerArgs(t, "http", r.Addr, r.Prefix, map[string]string{
		"redis-username": user, "redis-password": "unit-secret", "tokens.yaml": tokensOf(chartToken)})
	serves(t, args, chartToken)
}

// TestComposeServes: the command of service http serves with the token that the file names.
func TestComposeServes(t *testing.T) {
	t.Parallel()
	token := regexp.MustCompile(`Bearer ([^'"]+)`).FindStringSubmatch(file(t, "deploy/compose/compose.yaml"))
	if token == nil {
		t.Fatal("the file has no command with a token")
	}
	args := composeService(t, "http").Command
	for i, arg := range args {
		if filepath.IsAbs(arg) {
			args[i] = filepath.Join(root, "deploy/compose", filepath.Base(arg))
		}
	}
	r := fixture.New(t)
	serves(t, args, token[1], "DUEFLEET_REDIS_ADDRS="+r.Addr, "DUEFLEET_REDIS_PREFIX="+r.Prefix,
		"DUEFLEET_RABBITMQ_URLS=amqp://x/", "DUEFLEET_CONSUL_ADDR=consul:8500", "DUEFLEET_ADMIN_LISTEN=0.0.0.0:9320")
}

// tokensOf returns a file of tokens with a client for all topics.
func tokensOf(token string) string {
	hash := sha256.Sum256([]byte(token))
	return "clients: [{name: a, sha256: [" + hex.EncodeToString(hash[:]) + "], topics: ['*'], verbs: [schedule, get]}]"
}

// serves runs `producer` on free ports until the test ends. The server must know a token,
// and refuse another one.
func serves(t *testing.T, args []string, token string, env ...string) {
	t.Helper()
	for i := range args {
		if i > 0 && strings.HasSuffix(args[i-1], "listen") {
			args[i] = "127.0.0.1:0"
		}
	}
	addr := startServer(t, programs.Producer, args, env...)
	task := "http://" + addr + "/v1/topics/orders/tasks/a"
	check.Equal(t, "with the token", status(t, task, token), http.StatusNotFound)
	check.Equal(t, "with another one", status(t, task, token+"x"), http.StatusUnauthorized)
}
