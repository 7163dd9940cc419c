package deploy_test

import (
	"context"
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
)

// manifestsNamed returns the manifests with a name, by their kinds.
func manifestsNamed(t *testing.T, manifests, name string) map[string]string {
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
		if m.Metadata.Name == name {
			all[m.Kind] = strings.TrimPrefix(text, "---\n")
		}
	}
	return all
}

// withServer returns the arguments that add a server to the chart, with all its parts.
func withServer(part string, more ...string) []string {
	args := []string{"--set", "serviceMonitor.enabled=true"}
	for _, value := range []string{"enabled=true", "tls.secretName=duefleet-tls", "ingress.enabled=true",
		"ingress.host=duefleet.example.com", "ingress.tlsSecretName=front", "secret.keys.redisUsername=redis-username"} {
		args = append(args, "--set", part+"."+value)
	}
	return append(args, more...)
}

// TestChartOfServers: each is off by default. All its manifests match their schemas, and
// its pods aren't taken for scanners.
func TestChartOfServers(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"http", "console"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			checkServerInChart(t, part)
		})
	}
	for set, key := range map[string]string{"http.replica=2": "replica", "http.ingress.hots=x": "hots",
		"http.tokens.secretName=": "secretName", "http.enabled=often": "enabled", "console.user=x": "user",
		"console.service.type=x": "type", "config.console.listen=:80": "listen", "console.readOnly=1": "readOnly",
		"config.console.token=x": "token"} {
		said := refused(t, command(t, nil, tool(t, "helm"), "template", "duefleet", chart, "--kube-version", kubeVersion,
			"--set", set))
		if !strings.Contains(said, key) {
			t.Errorf("--set %s: %s, want the schema to refuse %s", set, said, key)
		}
	}
}

func checkServerInChart(t *testing.T, part string) {
	t.Helper()
	name := "duefleet-" + part
	if off := manifestsNamed(t, render(t), name); len(off) > 0 {
		t.Errorf("the defaults have %v", off)
	}
	manifests := render(t, withServer(part)...)
	const want = "15 resources found parsing stdin - Valid: 15, Invalid: 0, Errors: 0, Skipped: 0"
	if got := must(t, command(t, []byte(manifests), tool(t, "kubeconform"), conform(t)...)); !strings.Contains(got, want) {
		t.Errorf("kubeconform says %q, want %q", got, want)
	}
	all := manifestsNamed(t, manifests, name)
	for _, kind := range []string{"Deployment", "Service", "Ingress", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget",
		"ServiceMonitor"} {
		if all[kind] == "" {
			t.Errorf("there is no %s", kind)
		}
		if strings.Contains(all[kind], "app.kubernetes.io/name: duefleet\n") {
			t.Errorf("%s has the label of scanners:\n%s", kind, all[kind])
		}
	}
	if off := manifestsNamed(t, render(t, "--set", part+".enabled=true"), name); off["Ingress"] != "" {
		t.Error("there is an Ingress without its switch")
	}
	checkServersPod(t, all["Deployment"])
}

func checkServersPod(t *testing.T, deployment string) {
	t.Helper()
	pod := find(t, deployment, "Deployment").Spec.Template.Spec
	box := pod.Containers[0].Security
	if pod.Security["runAsNonRoot"] != true || box["readOnlyRootFilesystem"] != true ||
		box["allowPrivilegeEscalation"] != false ||
		!strings.Contains(deployment, "automountServiceAccountToken: false") {
		t.Errorf("the pod runs with %v and %v", pod.Security, box)
	}
	if sleep := pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds; pod.Grace < sleep+20+5 {
		t.Errorf("preStop %d s, grace period %d s, and requests may take 20 s", sleep, pod.Grace)
	}
}

// containerArgs returns the arguments of a server's container in the chart, with files in
// place of its Secrets and its ConfigMap.
func containerArgs(t *testing.T, part, addr, prefix string, files map[string]string) (args []string) {
	t.Helper()
	all := manifestsNamed(t, render(t, withServer(part, "--set", part+".tls.secretName=", "--set",
		"config.redis.prefix="+prefix, "--set", "config.redis.addrs={"+strings.ReplaceAll(addr, ",", `\,`)+"}")...),
		"duefleet-"+part)
	dir := t.TempDir()
	folders := regexp.MustCompile(`/run/secrets/\w+`)
	files[part+".yaml"] = folders.ReplaceAllString(find(t, all["ConfigMap"], "ConfigMap").Data[part+".yaml"], dir)
	for name, content := range files {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	args = find(t, all["Deployment"], "Deployment").Spec.Template.Spec.Containers[0].Args
	for i, arg := range args {
		if filepath.IsAbs(arg) {
			args[i] = filepath.Join(dir, filepath.Base(arg))
		}
	}
	return args
}

// startServer runs a program until the test ends, and waits until it is ready. It must end
// well after SIGTERM. The log has its address.
func startServer(t *testing.T, program string, args []string, env ...string) (addr string) {
	t.Helper()
	cmd, log := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...), &check.Log{}
	cmd.Env, cmd.Stderr = environ(env...), log
	check.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := check.Receive(t, "the server's end", ended); err != nil {
			t.Errorf("%v: %s", err, log)
		}
	})
	address := regexp.MustCompile(`listen"?[=:]"?(127\.0\.0\.1:\d+)"?[, ]"?admin"?[=:]"?(127\.0\.0\.1:\d+)`)
	check.Until(t, "the server, or its end", func() bool { return address.MatchString(log.String()) || len(ended) > 0 })
	at := address.FindStringSubmatch(log.String())
	if at == nil {
		t.Fatalf("%s: %s", args, log)
	}
	check.Until(t, "the server to be ready", func() bool { return status(t, "http://"+at[2]+"/readyz", "") == 200 })
	return at[1]
}

// status returns the status of a page for a token.
func status(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check.OK(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	check.OK(t, err)
	check.OK(t, resp.Body.Close())
	return resp.StatusCode
}

// TestUnitsOfServers: systemd accepts each unit, with and without credentials, rates its
// security well, and waits long enough when it stops it.
func TestUnitsOfServers(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{"http": "TimeoutStopSec=25s\n", "console": "TimeoutStopSec=10s\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkServersUnit(t, name, stop)
		})
	}
}

func checkServersUnit(t *testing.T, name, stop string) {
	t.Helper()
	unit := "duefleet-" + name + ".service"
	text := file(t, "deploy/systemd/"+unit)
	for _, line := range []string{stop, "DynamicUser=yes\n", "ProtectSystem=strict\n", "Restart=always\n"} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the unit lacks %q", line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		skip(t, "systemd-analyze is not there; on Debian: apt-get install systemd")
	}
	path := filepath.Join(t.TempDir(), unit)
	// systemd checks that the program exists.
	text = strings.NewReplacer("/usr/local/bin/producer", programs.Producer, "/usr/local/bin/scanner",
		programs.Scanner).Replace(text)
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, command(t, nil, analyze, "verify", "--man=no", path))
	must(t, command(t, nil, analyze, "security", "--offline=true", "--no-pager", "--threshold=15", path))
	check.OK(t, os.Mkdir(path+".d", 0o700))
	conf := file(t, "deploy/systemd/"+name+"-credentials.conf")
	all := regexp.MustCompile(`(?m)^#(LoadCredential|Environment|SupplementaryGroups)`).ReplaceAllString(conf, "$1")
	for _, text := range []string{conf, all} {
		check.OK(t, os.WriteFile(filepath.Join(path+".d", "credentials.conf"), []byte(text), 0o600))
		must(t, command(t, nil, analyze, "verify", "--man=no", path))
	}
}
