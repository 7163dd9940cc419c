package deploy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/hashicorp/consul/api"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	rulesFile     = "deploy/prometheus/duefleet.rules.yaml"
	ruleTestsFile = "deploy/prometheus/duefleet.test.yaml"
	outagesFile   = "deploy/prometheus/duefleet.outages.test.yaml"
	expectedFile  = "deploy/prometheus/duefleet.expected.yaml"
	dashboardFile = "deploy/grafana/duefleet.json"
	runbooks      = "https://github.com/duefleet/duefleet/blob/main/docs/alerts.md#"
)

// rules holds the fields of the alerts' file that the tests read.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Record      string            `yaml:"record"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func readRules(t *testing.T) rules {
	t.Helper()
	var r rules
	check.OK(t, yaml.Unmarshal([]byte(file(t, rulesFile)), &r))
	if len(r.Groups) == 0 || len(r.Groups[0].Rules) == 0 {
		t.Fatal("there are no alerts")
	}
	return r
}

// dashboard holds the fields of Grafana's dashboard that the tests read.
type dashboard struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	check.OK(t, json.Unmarshal([]byte(file(t, dashboardFile)), &d))
	return d
}

// expressions returns all queries of the dashboard and the alerts, by their place.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %d %q, query %d", p.ID, p.Title, i+1)] = target.Expr
		}
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			all["rule "+r.Alert+r.Record] = r.Expr
		}
	}
	return all
}

// metricNames returns the metrics that a text names, histograms without their suffix.
func metricNames(text string, exported map[string]*dto.MetricFamily) []string {
	var names []string
	for _, name := range regexp.MustCompile(`\b(duefleet|process|go)_[a-z0-9_]+`).FindAllString(text, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base, cut := strings.CutSuffix(name, suffix)
			if cut && exported[base].GetType() == dto.MetricType_HISTOGRAM {
				name = base
			}
		}
		names = append(names, name)
	}
	return names
}

// TestMetricsExist: a running scanner exports every metric that the dashboard, an alert or
// the Helm chart queries, with the labels that they group by.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	exported, recorded := scrape(t), recordings(t)
	texts := expressions(t)
	for _, v := range readDashboard(t).Templating.List {
		texts["variable "+v.Name] = fmt.Sprint(v.Query)
	}
	texts["values.yaml of the chart"] = file(t, "deploy/helm/duefleet/values.yaml")
	texts["ScaledObject of the chart"] = file(t, "deploy/helm/duefleet/templates/scaledobject.yaml")
	texts["tests of the alerts"] = file(t, ruleTestsFile) + file(t, outagesFile)
	used := 0
	for where, text := range texts {
		for _, name := range metricNames(text, exported) {
			used++
			if exported[name] == nil && !recorded[name] {
				t.Errorf("%s: %s is not exported by a running scanner", where, name)
			}
		}
	}
	if used < 60 {
		t.Errorf("found only %d names of metrics: does the search still work?", used)
	}
	// Each metric of our own is shown somewhere, or nobody would see it.
	shown := strings.Join(slices.Collect(mapValues(texts)), " ")
	for name := range exported {
		if strings.HasPrefix(name, "duefleet_") && !strings.Contains(shown, name) {
			t.Errorf("%s is on no dashboard and in no alert", name)
		}
	}
}

// recordings are the metrics that the rules record.
func recordings(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	text := file(t, expectedFile) + file(t, rulesFile)
	for _, m := range regexp.MustCompile(`(?m)- record: (?:\w+:)?(\w+)$`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

func mapValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// scrape starts a scanner with Consul and reads what it exports.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	servertest.Need(t, "redis-server", "rabbitmq-server", "consul")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	s.RedisAddr = servertest.OwnRedis(t, "--maxmemory", "1gb").Addr()
	putDocument(t, s, "orders", `{"shards": 2, "declare": {"queue": "orders.due", "queue_type": "classic"},
		"intake": {"exchange": "orders.in"}}`)
	scanner := startScanner(t, s)
	var families map[string]*dto.MetricFamily
	check.Until(t, "shards, Consul and the intake to be in the metrics", func() bool {
		var body bytes.Buffer
		check.OK(t, scanner.Get(t.Context(), "/metrics", &body))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		var err error
		families, err = parser.TextToMetricFamilies(&body)
		check.OK(t, err)
		// Shards are counted, servers are asked and the intake begins a moment after the start.
		return families["duefleet_pending_tasks"] != nil && families["duefleet_consul_up"] != nil &&
			families["duefleet_intake_total"] != nil && families["duefleet_redis_memory_max_bytes"] != nil &&
			families["duefleet_redis_clock_offset_seconds"] != nil
	})
	maps.Copy(families, scrapeTLS(t))
	return families
}

// scrapeTLS returns the metrics of certificates and of problems. The scanner's servers have
// no TLS, so it reaches none.
func scrapeTLS(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	const certificate, problem = "duefleet_certificate_expiry_timestamp_seconds", "duefleet_problem"
	ca := filepath.Join(t.TempDir(), "ca.pem")
	cert, _ := servertest.Certificate(t)
	check.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		0o600))
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)}
	s.More = map[string]fleet.Topic{"redis": {"tls": map[string]any{"enabled": true, "ca_file": ca}}}
	scanner, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{Binary: programs.Scanner,
		Config: writeSettings(t, s), Dir: t.TempDir(), Name: "tls", Unready: true})
	check.OK(t, err)
	t.Cleanup(func() { _ = scanner.Kill() })
	var families map[string]*dto.MetricFamily
	check.Until(t, "the certificate and the problem to be in the metrics", func() bool {
		var body bytes.Buffer
		if scanner.Get(t.Context(), "/metrics", &body) != nil {
			return false // it has just begun
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err = parser.TextToMetricFamilies(&body)
		return err == nil && families[certificate] != nil && families[problem] != nil
	})
	return map[string]*dto.MetricFamily{certificate: families[certificate], problem: families[problem]}
}

// putDocument writes a topic's document to Consul without the scanner program.
func putDocument(t *testing.T, s fleet.Settings, topic, document string) {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Address = s.ConsulAddr
	client, err := api.NewClient(cfg)
	check.OK(t, err)
	pair := &api.KVPair{Key: s.ConsulPrefix + "/topics/" + topic, Value: []byte(document)}
	_, err = client.KV().Put(pair, nil)
	check.OK(t, err)
}

// TestAlertsAreExplained: docs/alerts.md has a section for each alert, and a row with its
// severity and its time. The alert links to the section. The rules' own tests have a case
// where it fires and one where it doesn't. The page explains no other alert.
func TestAlertsAreExplained(t *testing.T) {
	t.Parallel()
	page := readAlertsPage(file(t, "docs/alerts.md"))
	tests := file(t, ruleTestsFile)
	for _, r := range readRules(t).Groups[0].Rules {
		if r.Record != "" {
			continue
		}
		for _, mistake := range page.mistakes(r.Alert, r.Labels["severity"], r.For) {
			t.Errorf("docs/alerts.md: %s", mistake)
		}
		delete(page.sections, r.Alert)
		if want := runbooks + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity is %q, want page or ticket", r.Alert, s)
		}
		if n := strings.Count(tests, "alertname: "+r.Alert+"\n"); n < 2 {
			t.Errorf("%s has %d tests, want one where it fires and one where it doesn't", r.Alert, n)
		}
	}
	for name := range page.sections {
		if strings.HasPrefix(name, "Duefleet") {
			t.Errorf("docs/alerts.md explains %s, and there is no such alert", name)
		}
	}
}

// alertsPage is docs/alerts.md: its sections by heading, and the severity and the time
// of each alert in its table, as in "page | 2m".
type alertsPage struct{ sections, rows map[string]string }

func readAlertsPage(text string) alertsPage {
	p := alertsPage{sections: map[string]string{}, rows: map[string]string{}}
	for _, section := range strings.Split(text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		p.sections[heading] = body
	}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(#\w+\) \| (\w+ \| [\w ]+) \|`).FindAllStringSubmatch(text,
		-1) {
		p.rows[m[1]] = m[2]
	}
	return p
}

// mistakes returns what is wrong with the explanation of an alert. after is the rule's
// "for", or "" if the alert fires at once.
func (p alertsPage) mistakes(alert, severity, after string) (all []string) {
	body, there := p.sections[alert]
	if !there {
		all = append(all, "no section "+alert)
	}
	steps := "**Do.**"
	for _, part := range []string{"**Meaning.**", "**Look at.**", steps} {
		if there && !strings.Contains(body, "\n"+part) {
			all = append(all, alert+" has no "+part)
		}
	}
	if _, do, found := strings.Cut(body, "\n"+steps); found && !strings.Contains(do, "\n1. ") {
		all = append(all, alert+" has no numbered steps")
	}
	if want := severity + " | " + cmp.Or(after, "at once"); p.rows[alert] != want {
		all = append(all, fmt.Sprintf("the row of %s says %q, want %q", alert, p.rows[alert], want))
	}
	return all
}

// TestAlertsPageMistakes: each mistake of docs/alerts.md is found.
func TestAlertsPageMistakes(t *testing.T) {
	t.Parallel()
	const row = "| [DuefleetA](#duefleeta) | page | 2m | in short |\n"
	const good = row + "\n## DuefleetA\n\n**Meaning.** m\n\n**Look at.** l\n\n**Do.**\n\n1. d\n"
	for name, c := range map[string]struct{ page, want string }{
		"good":            {good, ""},
		"no section":      {row, "no section DuefleetA"},
		"another heading": {strings.Replace(good, "## DuefleetA", "## DuefleetB", 1), "no section DuefleetA"},
		"no meaning":      {strings.Replace(good, "**Meaning.** m", "m", 1), "DuefleetA has no **Meaning.**"},
		"no steps":        {strings.Replace(good, "1. d", "d", 1), "DuefleetA has no numbered steps"},
		"severity": {strings.Replace(good, "| page |", "| ticket |", 1),
			`the row of DuefleetA says "ticket | 2m", want "page | 2m"`},
		"time": {strings.Replace(good, "| 2m |", "| at once |", 1),
			`the row of DuefleetA says "page | at once", want "page | 2m"`},
		"no row": {strings.Replace(good, row, "", 1), `the row of DuefleetA says "", want "page | 2m"`},
	} {
		if got := strings.Join(readAlertsPage(c.page).mistakes("DuefleetA", "page", "2m"), "; "); got != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// TestPromtool: promtool reads the alerts, and their own tests pass. An outage of Redis or
// RabbitMQ has one alert, and none when it is over.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	must(t, command(t, nil, promtool, "check", "rules", filepath.Join(root, rulesFile), filepath.Join(root, expectedFile)))
	must(t, command(t, nil, promtool, "test", "rules", filepath.Join(root, ruleTestsFile),
		filepath.Join(root, outagesFile)))
}

// TestDashboardQueries: promtool reads every query of the dashboard. No two panels have
// the same number.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	var list []map[string]string
	seen := map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if seen[p.ID] {
			t.Errorf("panel %d is there twice", p.ID)
		}
		seen[p.ID] = true
		for i, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$topic", ".*").Replace(target.Expr)
			list = append(list, map[string]string{"record": fmt.Sprintf("panel:%d:%d", p.ID, i), "expr": expr})
		}
	}
	b, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": list}}})
	check.OK(t, err)
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	check.OK(t, os.WriteFile(path, b, 0o600))
	must(t, command(t, nil, promtool, "check", "rules", path))
}
