package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/test/check"
)

// TestChartHoldsAlertsAndDashboard: the chart's copies of the alerts and the dashboard
// equal the original files. A chart can't use files outside its folder.
func TestChartHoldsAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	for _, path := range []string{rulesFile, dashboardFile} {
		held := filepath.Join(chart, "files", filepath.Base(path))
		check.Golden(t, held, file(t, path), "go test ./test/deploy -run "+t.Name()+" -update")
	}
}

// TestChartWatches: the chart's PrometheusRule has all alerts and the expected number of
// scanners, and promtool accepts it. The dashboard's ConfigMap is complete.
func TestChartWatches(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	for number, set := range map[string]string{
		"vector(5)": "replicas=5",
		"vector(2)": "replicas=5,keda.enabled=true",
		"vector(4)": "replicas=5,keda.enabled=true,prometheusRule.expectedScanners=4",
		"vector(0)": "replicas=5,prometheusRule.expectedScanners=0",
	} {
		manifests := render(t, "--set", "prometheusRule.enabled=true,dashboard.enabled=true,"+set)
		got := chartRules(t, manifests, promtool)
		if n := len(got.Groups[0].Rules); n != len(readRules(t).Groups[0].Rules) {
			t.Errorf("the chart has %d alerts, want all", n)
		}
		expected := got.Groups[len(got.Groups)-1].Rules[0]
		if expected.Record != "duefleet_expected_scanners" || expected.Expr != number ||
			expected.Labels["job"] != "duefleet" {
			t.Errorf("%s: the chart records %+v, want %s", set, expected, number)
		}
		if !strings.Contains(manifests, "  name: duefleet-dashboard\n") || !strings.Contains(manifests,
			`grafana_dashboard: "1"`) {
			t.Error("there is no ConfigMap of the dashboard for Grafana's sidecar")
		}
	}
	if manifests := render(t); strings.Contains(manifests, "PrometheusRule") || strings.Contains(manifests, "dashboard") {
		t.Error("alerts and dashboard are not off by default")
	}
}

// chartRules returns the rules of the chart's PrometheusRule, after promtool has read
// them.
func chartRules(t *testing.T, manifests, promtool string) (got rules) {
	t.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		var m struct {
			Kind string         `yaml:"kind"`
			Spec map[string]any `yaml:"spec"`
		}
		check.OK(t, yaml.Unmarshal([]byte(text), &m))
		if m.Kind != "PrometheusRule" {
			continue
		}
		b, err := yaml.Marshal(m.Spec)
		check.OK(t, err)
		path := filepath.Join(t.TempDir(), "rules.yaml")
		check.OK(t, os.WriteFile(path, b, 0o600))
		must(t, command(t, nil, promtool, "check", "rules", path))
		check.OK(t, yaml.Unmarshal(b, &got))
		return got
	}
	t.Fatal("there is no PrometheusRule")
	return got
}

// TestChartTakesMore: the chart accepts variables of the container and annotations of the
// service account.
func TestChartTakesMore(t *testing.T) {
	t.Parallel()
	manifests := render(t, everything()...)
	for _, want := range []string{
		"          env:\n            - name: GOMEMLIMIT\n              value: 200MiB\n",
		"eks.amazonaws.com/role-arn: arn:aws:iam::1:role/shop\n",
	} {
		if !strings.Contains(manifests, want) {
			t.Errorf("the manifests lack %q", want)
		}
	}
}
