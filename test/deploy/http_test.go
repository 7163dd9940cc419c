package deploy_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/wait"
)

// chartToken is the token of clients in these tests.
const chartToken = "0123456789abcdef0123456789abcdef"

// withHTTP are the arguments that add `producer serve` to the chart, with all its parts.
func withHTTP(more ...string) []string {
	return append([]string{"--set", "http.enabled=true", "--set", "http.tls.secretName=duefleet-tls", "--set",
		"http.ingress.enabled=true,http.ingress.host=duefleet.example.com,http.ingress.tlsSecretName=front", "--set",
		"http.secret.keys.redisUsername=redis-username,serviceMonitor.enabled=true"}, more...)
}

// httpManifests returns the manifests of `producer serve`, by their kinds.
func httpManifests(t *testing.T, manifests string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, text := range strings.Split(manifests, "\n---\n") {
		var m struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		check.OK(t, yaml.Unmarshal([]byte(strings.TrimPrefix(text, "---\n")), &m))
		if m.Metadata.Name == "duefleet-http" {
			all[m.Kind] = strings.TrimPrefix(text, "---\n")
		}
	}
	return all
}

// TestChartOfHTTP: off by default. All its manifests match their schemas, and its pods
// aren't taken for scanners.
func TestChartOfHTTP(t *testing.T) {
	t.Parallel()
	if off := httpManifests(t, render(t)); len(off) > 0 {
		t.Errorf("the defaults have %v", off)
	}
	manifests := render(t, withHTTP()...)
	const want = "15 resources found parsing stdin - Valid: 15, Invalid: 0, Errors: 0, Skipped: 0"
	if got := must(t, command(t, []byte(manifests), tool(t, "kubeconform"), conform(t)...)); !strings.Contains(got, want) {
		t.Errorf("kubeconform says %q, want %q", got, want)
	}
	all := httpManifests(t, manifests)
	for _, kind := range []string{"Deployment", "Service", "Ingress", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget",
		"ServiceMonitor"} {
		if all[kind] == "" {
			t.Errorf("there is no %s", kind)
		}
		if strings.Contains(all[kind], "app.kubernetes.io/name: duefleet\n") {
			t.Errorf("%s has the label of scanners:\n%s", kind, all[kind])
		}
	}
	pod := find(t, all["Deployment"], "Deployment").Spec.Template.Spec
	box := pod.Containers[0].Security
	if pod.Security["runAsNonRoot"] != true || box["readOnlyRootFilesystem"] != true ||
		box["allowPrivilegeEscalation"] != false ||
		!strings.Contains(all["Deployment"], "automountServiceAccountToken: false") {
		t.Errorf("the pod runs with %v and %v", pod.Security, box)
	}
	if sleep := pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds; pod.Grace < sleep+20+5 {
		t.Errorf("preStop %d s, grace period %d s, and requests may take 20 s", sleep, pod.Grace)
	}
	for set, key := range map[string]string{"http.replica=2": "replica", "http.ingress.hots=x": "hots",
		"http.tokens.secretName=": "secretName", "http.enabled=often": "enabled"} {
		said := refused(t, command(t, nil, tool(t, "helm"), "template", "duefleet", chart, "--kube-version", kubeVersion,
			"--set", set))
		if !strings.Contains(said, key) {
			t.Errorf("--set %s: %s, want the schema to refuse %s", set, said, key)
		}
	}
}

// TestChartOfHTTPServes: the container's command serves with the chart's configuration and
// the files of its Secrets.
func TestChartOfHTTPServes(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	user := strings.ReplaceAll(r.Prefix, ":", "-")
	admit(t, r.Addr, user, "unit-secret")
	all := httpManifests(t, render(t, withHTTP("--set", "http.tls.secretName=",
		"--set", "config.redis.prefix="+r.Prefix, "--set", "config.redis.addrs={"+strings.ReplaceAll(r.Addr, ",", `\,`)+"}")...))
	dir := t.TempDir()
	for name, content := range map[string]string{
		"redis-username": user, "redis-password": "unit-secret", "tokens.yaml": tokensOf(chartToken),
		"http.yaml": strings.ReplaceAll(find(t, all["ConfigMap"], "ConfigMap").Data["http.yaml"], secretFolder, dir),
	} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	args := find(t, all["Deployment"], "Deployment").Spec.Template.Spec.Containers[0].Args
	for i, arg := range args {
		if filepath.IsAbs(arg) {
			args[i] = filepath.Join(dir, filepath.Base(arg))
		}
	}
	serves(t, args, chartToken)
}

// TestComposeServes: the command of service http serves with the token that the file names.
func TestComposeServes(t *testing.T) {
	t.Parallel()
	var c composed
	check.OK(t, yaml.Unmarshal([]byte(must(t, command(t, nil, tool(t, "compose"), composeFile))), &c))
	token := regexp.MustCompile(`Bearer ([^'"]+)`).FindStringSubmatch(file(t, "deploy/compose/compose.yaml"))
	if token == nil {
		t.Fatal("the file has no command with a token")
	}
	args := c.Services["http"].Command
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
	cmd, log := exec.CommandContext(t.Context(), programs.Producer, args...), &wait.Log{} //nolint:gosec // our own program
	cmd.Env, cmd.Stderr = environ(env...), log
	check.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	address := regexp.MustCompile(`listen"?[=:]"?(127\.0\.0\.1:\d+)"?[, ]"?admin"?[=:]"?(127\.0\.0\.1:\d+)`)
	wait.For(t, "the server, or its end", func() bool { return address.MatchString(log.String()) || len(ended) > 0 })
	at := address.FindStringSubmatch(log.String())
	if at == nil {
		t.Fatalf("%s: %s", args, log)
	}
	status := func(url, token string) int {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		check.OK(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		check.OK(t, err)
		check.OK(t, resp.Body.Close())
		return resp.StatusCode
	}
	wait.For(t, "the server to be ready", func() bool { return status("http://"+at[2]+"/readyz", "") == 200 })
	task := "http://" + at[1] + "/v1/topics/orders/tasks/a"
	check.Equal(t, "with the token", status(task, token), http.StatusNotFound)
	check.Equal(t, "with another one", status(task, token+"x"), http.StatusUnauthorized)
	check.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	check.OK(t, wait.Receive(t, "the server's end", ended))
}

// TestUnitOfHTTP: systemd accepts the unit, with and without credentials, rates its
// security well, and waits longer than requests may take.
func TestUnitOfHTTP(t *testing.T) {
	t.Parallel()
	text := file(t, "deploy/systemd/duefleet-http.service")
	for _, line := range []string{"TimeoutStopSec=25s\n", "DynamicUser=yes\n", "ProtectSystem=strict\n",
		"Restart=always\n"} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the unit lacks %q", line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		skip(t, "systemd-analyze is not there; on Debian: apt-get install systemd")
	}
	path := filepath.Join(t.TempDir(), "duefleet-http.service")
	// systemd checks that the program exists.
	text = strings.ReplaceAll(text, "/usr/local/bin/producer", programs.Producer)
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, command(t, nil, analyze, "verify", "--man=no", path))
	must(t, command(t, nil, analyze, "security", "--offline=true", "--no-pager", "--threshold=15", path))
	check.OK(t, os.Mkdir(path+".d", 0o700))
	conf := file(t, "deploy/systemd/http-credentials.conf")
	tls := regexp.MustCompile(`(?m)^#(LoadCredential|Environment)`).ReplaceAllString(conf, "$1")
	for _, text := range []string{conf, tls} {
		check.OK(t, os.WriteFile(filepath.Join(path+".d", "credentials.conf"), []byte(text), 0o600))
		must(t, command(t, nil, analyze, "verify", "--man=no", path))
	}
}
