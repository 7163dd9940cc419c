package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
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

// TestComposeChecksTheHealthOfHTTP: the service's check asks the server's own port, and fails if
// the server doesn't answer.
func TestComposeChecksTheHealthOfHTTP(t *testing.T) {
	t.Parallel()
	s := composeService(t, "http")
	check.Equal(t, "check", strings.Join(s.Healthcheck.Test, " "), "CMD /scanner healthcheck")
	listen := s.Environment["DUEFLEET_ADMIN_LISTEN"]
	if !strings.Contains(strings.Join(s.Command, " "), " --admin-listen "+listen+" ") {
		t.Errorf("the check asks %s, and the command is %s", listen, s.Command)
	}
	r := fixture.New(t)
	addr, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	env := []string{"DUEFLEET_REDIS_ADDRS=" + r.Addr, "DUEFLEET_REDIS_PREFIX=" + r.Prefix, "DUEFLEET_ADMIN_LISTEN=" + addr}
	healthy := func() *exec.Cmd {
		cmd := command(t, nil, programs.Scanner, s.Healthcheck.Test[2:]...)
		cmd.Env = environ(env...)
		return cmd
	}
	refused(t, healthy())
	startServer(t, programs.Producer, []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", addr}, env...)
	must(t, healthy())
}

// TestTheUnitsCertificateIsRenewed: the key of http-credentials.conf is for a group that the unit
// has, and the server uses a renewed pair without a restart.
func TestTheUnitsCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	conf := file(t, "deploy/systemd/http-credentials.conf")
	line := func(expression string) string {
		found := regexp.MustCompile(`(?m)^` + expression + `$`).FindStringSubmatch(conf)
		if found == nil {
			t.Fatalf("http-credentials.conf has no line %s", expression)
		}
		return found[1]
	}
	group := line(`#SupplementaryGroups=(\S+)`)
	check.Equal(t, "group", line(`#   groupadd --system (\S+)`), group)
	check.Equal(t, "key's group", line(`#   install -m 0640 -g (\S+) tls\.key /etc/duefleet/http-tls\.key`), group)
	args := strings.Fields(line(`#Environment=LISTEN=:9340 "TLS=([^"]+)"`))
	servertest.TakesNewCertificate(t, func(cert, key string) string {
		r := fixture.New(t)
		args := strings.Fields(strings.NewReplacer("/etc/duefleet/http-tls.crt", cert, "/etc/duefleet/http-tls.key", key).
			Replace(strings.Join(args, " ")))
		return "https://" + startServer(t, programs.Producer, append([]string{"serve", "--listen", "127.0.0.1:0",
			"--admin-listen", "127.0.0.1:0"}, args...), "DUEFLEET_REDIS_ADDRS="+r.Addr, "DUEFLEET_REDIS_PREFIX="+r.Prefix)
	})
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
