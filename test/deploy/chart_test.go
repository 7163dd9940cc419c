package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/test/check"
)

const (
	chart = root + "/deploy/helm/duefleet"
	// kubeVersion is the Kubernetes version that the chart is rendered for.
	kubeVersion = "1.34.0"
	// secretFolder is the folder where the chart mounts secrets.
	secretFolder = "/run/secrets/duefleet"
)

// render returns the manifests that helm makes from the chart.
func render(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"template", "duefleet", chart, "--kube-version", kubeVersion}, args...)
	return must(t, command(t, nil, tool(t, "helm"), args...))
}

// conform returns the arguments that make kubeconform as strict as an API server.
func conform(t *testing.T) []string {
	t.Helper()
	schemas := filepath.Join(filepath.Dir(tool(t, "kubeconform")), "schemas")
	return []string{"-strict", "-summary", "-schema-location", schemas + "/{{.ResourceKind}}{{.KindSuffix}}.json"}
}

// everything returns the arguments that enable all features of the chart.
func everything() []string { return []string{"--values", "testdata/values.yaml"} }

// TestChart: helm lint accepts the chart, and the manifests match the schemas of
// Kubernetes, the Prometheus operator and KEDA.
func TestChart(t *testing.T) {
	t.Parallel()
	must(t, command(t, nil, tool(t, "helm"), "lint", "--strict", "--kube-version", kubeVersion, chart))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"defaults":   {nil, "6 resources found parsing stdin - Valid: 6, Invalid: 0, Errors: 0, Skipped: 0"},
		"everything": {everything(), "10 resources found parsing stdin - Valid: 10, Invalid: 0, Errors: 0, Skipped: 0"},
	} {
		manifests := render(t, c.args...)
		if got := must(t, command(t, []byte(manifests), tool(t, "kubeconform"), conform(t)...)); !strings.Contains(got,
			c.want) {
			t.Errorf("%s: kubeconform says %q, want %q", name, got, c.want)
		}
	}
	// Check that kubeconform does notice mistakes.
	wrong := strings.Replace(render(t, everything()...), "fallback:", "fallbak:", 1)
	wrong = strings.Replace(wrong, "{preStop:", "{preStopp:", 1)
	wrong = strings.Replace(wrong, "record: duefleet_", "recorded: duefleet_", 1)
	said := refused(t, command(t, []byte(wrong), tool(t, "kubeconform"), conform(t)...))
	for _, key := range []string{"fallbak", "preStopp", "recorded"} {
		if !strings.Contains(said, "'"+key+"' not allowed") {
			t.Errorf("kubeconform doesn't notice the unknown key %s: %s", key, said)
		}
	}
}

// TestChartRefusesWrongValues: helm rejects a value that is misspelt, out of range, or a
// secret in the wrong place.
func TestChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	helm := tool(t, "helm")
	for set, want := range map[string]string{
		"replica=2":                           "replica",
		"replicas=0":                          "replicas",
		"shutdownTimeoutSeconds=0":            "shutdownTimeoutSeconds",
		"config.redis.password=x":             "password",
		"config.rabbitmq.urls={amqp://x/}":    "urls",
		"config.consul.token=x":               "token",
		"config.redis.adrs={redis:6379}":      "adrs",
		"config.redis.tls.cafile=/ca":         "cafile",
		"config.rabbitmq.tsl.enabled=true":    "tsl",
		"config.consul.adr=x":                 "adr",
		"config.log.fromat=json":              "fromat",
		"config.log.level=loud":               "level",
		"config.topics.orders.shrads=4":       "shrads",
		"config.topics.orders.shards=0":       "shards",
		"config.topics.orders.tick=1":         "tick",
		"config.topics.orders.declare.que=x":  "que",
		"config.topics.orders.backoff.mim=1s": "mim",
		"config.topics.or/ders.shards=4":      "or/ders",
		"serviceAccount.annotation.x=y":       "annotation",
		"extraEnv[0].secret=x":                "secret",
		"prometheusRule.expectedScanners=-1":  "expectedScanners",
		"dashboard.enabled=often":             "enabled",
		"config.shutdown_timeout=20s":         "shutdown_timeout",
		"secret.keys.rabbitmqUrls=":           "rabbitmqUrls",
		"networkPolicy.egress[0].ports[0]=-1": "ports",
	} {
		said := refused(t, command(t, nil, helm, "template", "duefleet", chart, "--kube-version", kubeVersion, "--set", set))
		if !strings.Contains(said, "values") || !strings.Contains(said, want) {
			t.Errorf("--set %s: %s, want the schema to refuse %s", set, said, want)
		}
	}
	refused(t, command(t, nil, helm, "template", "duefleet", chart, "--kube-version", "1.29.0")) // no preStop.sleep there
}

// TestChartKnowsEveryKey: the schema has exactly the keys of config.example.yaml, which
// has all keys. Left out are secrets and the keys that the chart sets itself. The example
// has the *_file keys in comments.
func TestChartKnowsEveryKey(t *testing.T) {
	t.Parallel()
	example := file(t, "config.example.yaml")
	var want map[string]any
	check.OK(t, yaml.Unmarshal([]byte(regexp.MustCompile(`(?m)^(  )# (\w+_file:.*)$`).ReplaceAllString(example, "$1$2")),
		&want))
	keys := map[string]bool{}
	addKeys(keys, "", want)
	for key := range keys {
		if regexp.MustCompile(`^(admin.*|console\.(listen|admin_listen|tls.*|users_file|token)|shutdown_timeout|` +
			`redis\.password|rabbitmq\.urls|consul\.token)$`).MatchString(key) {
			delete(keys, key)
		}
	}
	var schema any
	check.OK(t, json.Unmarshal([]byte(file(t, "deploy/helm/duefleet/values.schema.json")), &schema))
	got := map[string]bool{}
	addSchemaKeys(got, "", at(schema, "properties", "config"), schema)
	for key := range keys {
		if !got[key] {
			t.Errorf("the chart's schema doesn't name %s, a key of config.example.yaml", key)
		}
	}
	for key := range got {
		if !keys[key] {
			t.Errorf("the chart's schema names %s, which isn't a key of config.example.yaml", key)
		}
	}
}

// addKeys collects a document's keys, with dots for sections.
func addKeys(keys map[string]bool, prefix string, document map[string]any) {
	for key, value := range document {
		keys[prefix+key] = true
		if section, ok := value.(map[string]any); ok {
			addKeys(keys, prefix+key+".", section)
		}
	}
}

// addSchemaKeys collects the keys that a schema allows. The keys of any topic are under
// topics.orders, as in the example.
func addSchemaKeys(keys map[string]bool, prefix string, schema, whole any) {
	if ref, ok := at(schema, "$ref").(string); ok {
		schema = at(whole, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	properties, _ := at(schema, "properties").(map[string]any)
	if more, ok := at(schema, "additionalProperties").(map[string]any); ok {
		properties = map[string]any{"orders": more}
	}
	for key, value := range properties {
		keys[prefix+key] = true
		addSchemaKeys(keys, prefix+key+".", value, whole)
	}
}

// at returns the value at a path of a document, or nil if there is none.
func at(document any, path ...string) any {
	for _, key := range path {
		object, _ := document.(map[string]any)
		document = object[key]
	}
	return document
}

// manifest is the part of a rendered manifest that tests read.
type manifest struct {
	Kind string            `yaml:"kind"`
	Data map[string]string `yaml:"data"`
	Spec struct {
		Replicas *int `yaml:"replicas"`
		Template struct {
			Metadata struct {
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
			Spec struct {
				Grace      int            `yaml:"terminationGracePeriodSeconds"`
				Security   map[string]any `yaml:"securityContext"`
				Containers []struct {
					Args      []string       `yaml:"args"`
					Security  map[string]any `yaml:"securityContext"`
					Lifecycle struct {
						PreStop struct {
							Sleep struct {
								Seconds int `yaml:"seconds"`
							} `yaml:"sleep"`
						} `yaml:"preStop"`
					} `yaml:"lifecycle"`
				} `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

// find returns the manifest of a kind.
func find(t *testing.T, manifests, kind string) manifest {
	t.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(text, "---\n")), &m); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if m.Kind == kind {
			return m
		}
	}
	t.Fatalf("there is no %s", kind)
	return manifest{}
}

// TestChartStopsInTime: preStop is longer than shutdown_timeout. The grace period
// includes both, and is longer than their sum.
func TestChartStopsInTime(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, everything()} {
		manifests := render(t, args...)
		var config struct {
			Timeout string `yaml:"shutdown_timeout"`
		}
		check.OK(t, yaml.Unmarshal([]byte(find(t, manifests, "ConfigMap").Data["scanner.yaml"]), &config))
		timeout, err := time.ParseDuration(config.Timeout)
		check.OK(t, err)
		pod := find(t, manifests, "Deployment").Spec.Template.Spec
		sleep := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
		grace := time.Duration(pod.Grace) * time.Second
		if sleep <= timeout || grace <= sleep+timeout {
			t.Errorf("preStop %s, shutdown_timeout %s, grace period %s; want the first longer than the second, the third "+
				"than both", sleep, timeout, grace)
		}
	}
}

// TestChartIsHardened: the pod has no root user, no writable file system, no rights and
// no token.
func TestChartIsHardened(t *testing.T) {
	t.Parallel()
	manifests := render(t)
	pod := find(t, manifests, "Deployment").Spec.Template.Spec
	box := pod.Containers[0].Security
	if pod.Security["runAsNonRoot"] != true || box["readOnlyRootFilesystem"] != true ||
		box["allowPrivilegeEscalation"] != false {
		t.Errorf("the pod runs with %v and %v", pod.Security, box)
	}
	if strings.Contains(manifests, "automountServiceAccountToken: true") ||
		!strings.Contains(manifests, "automountServiceAccountToken: false") {
		t.Error("the pod is given a token for Kubernetes")
	}
}

// TestChartConfigIsAScanners: scanner check accepts the configuration that the chart
// writes, with the secrets in files.
func TestChartConfigIsAScanners(t *testing.T) {
	t.Parallel()
	args := append(everything(), "--set", "config.consul.addr=,config.topics.orders.shards=8")
	text := find(t, render(t, args...), "ConfigMap").Data["scanner.yaml"]
	dir := t.TempDir()
	for name, content := range map[string]string{
		"redis-username": "duefleet", "redis-password": "secret", "rabbitmq-urls": "amqps://u:p@rabbitmq:5671/",
		"consul-token": "t",
	} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	path := filepath.Join(dir, "scanner.yaml")
	check.OK(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, secretFolder, dir)), 0o600))
	if got := must(t, command(t, nil, programs.Scanner, "check", "--config", path)); !strings.Contains(got,
		"ok: 1 topics") {
		t.Errorf("scanner check says %q of\n%s", got, text)
	}
}

// TestChartRestartsForConnectionsAlone: a changed topic reaches running scanners; changed
// connections replace the pods.
func TestChartRestartsForConnectionsAlone(t *testing.T) {
	t.Parallel()
	sum := func(set string) string {
		return find(t, render(t, "--set", set), "Deployment").Spec.Template.Metadata.Annotations["duefleet/connections"]
	}
	before := sum("config.topics.orders.shards=4")
	if after := sum("config.topics.orders.shards=8"); after != before || before == "" {
		t.Error("a topic's change restarts the scanners")
	}
	if after := sum("config.redis.prefix=other"); after == before {
		t.Error("a change of the connections doesn't restart the scanners")
	}
}

// TestChartRestartsForTheSecret: the chart doesn't read the Secret, so a new
// secret.version replaces the pods.
func TestChartRestartsForTheSecret(t *testing.T) {
	t.Parallel()
	sum := func(args ...string) string {
		return find(t, render(t, args...), "Deployment").Spec.Template.Metadata.Annotations["duefleet/secret"]
	}
	before, after := sum("--set", "secret.version=4711"), sum("--set", "secret.version=4712")
	if before == "" || after == before || strings.Contains(before, "4711") {
		t.Errorf("the pods' annotation is %q, then %q: another version doesn't replace them", before, after)
	}
	if sum() != "" {
		t.Error("there is an annotation without a version")
	}
}

// TestChartLeavesReplicasToKEDA: with KEDA the chart must not set the number of pods as
// well.
func TestChartLeavesReplicasToKEDA(t *testing.T) {
	t.Parallel()
	if n := find(t, render(t), "Deployment").Spec.Replicas; n == nil || *n != 3 {
		t.Errorf("without KEDA replicas are %v, want 3", n)
	}
	if n := find(t, render(t, everything()...), "Deployment").Spec.Replicas; n != nil {
		t.Errorf("with KEDA replicas are %d, want them left to it", *n)
	}
}
