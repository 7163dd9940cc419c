package deploy_test

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// held is how many minutes a phase of a trial lasts for the rules. No rule's "for" with the
// span that it looks back is longer, except a fleet's last day.
const held = 100

// phase is a part of a trial, with what the scanners exported in it, by series. A counter
// that rose between the two scrapes rises by as much in each minute of the phase. The
// age of a due task rises, too.
type phase struct{ first, last map[string]float64 }

// evaluation is the interval of the rules. A phase is so long that a shorter one changes
// nothing, and takes promtool more time.
const evaluation = "5m"

// alertsPause is the shortest time from one run of promtool to the next, which takes a core
// for half a second.
const alertsPause = 500 * time.Millisecond

// alertsAre waits until the shipped rules fire exactly these alerts at the end of a phase
// that begins now, after all earlier phases. At the end of the first phase, none fires.
func (tr *trial) alertsAre(want []string) {
	tr.t.Helper()
	now := phase{first: tr.scrape()}
	rules, samples := absolute(tr.t, filepath.Join(root, rulesFile)), []any{}
	names := metricName.FindAllString(file(tr.t, rulesFile), -1)
	for _, name := range slices.Sorted(slices.Values(want)) {
		samples = append(samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", name), "value": 1})
	}
	var said []byte
	var asked time.Time
	defer func() {
		if tr.t.Failed() {
			tr.t.Logf("promtool: %s", said)
		}
	}()
	check.Until(tr.t, "the alerts", func() bool {
		if time.Since(asked) < alertsPause {
			return false
		}
		defer func() { asked = time.Now() }()
		now.last = tr.scrape()
		phases := append(slices.Clone(tr.phases), now)
		path := filepath.Join(tr.t.TempDir(), "trial.test.yaml")
		check.OK(tr.t, fleet.WriteConfig(path, map[string]any{
			"rule_files": []string{rules}, "evaluation_interval": evaluation,
			"tests": []any{map[string]any{
				"interval": "1m", "input_series": inputSeries(phases, names),
				"promql_expr_test": []any{firing(1, []any{}), firing(len(phases), samples)},
			}},
		}))
		var err error
		said, err = command(tr.t, nil, tool(tr.t, "promtool"), "test", "rules", path).CombinedOutput()
		return err == nil
	})
	tr.phases = append(tr.phases, now)
}

// firing returns promtool's test of the alerts that fire at the end of a phase.
func firing(phases int, samples []any) map[string]any {
	return map[string]any{"expr": `group by (alertname) (ALERTS{alertstate="firing"})`,
		"eval_time": fmt.Sprintf("%dm", phases*held-1), "exp_samples": samples}
}

// inputSeries returns the series of phases as promtool takes them. Metrics that no rule asks for
// would only take it time. It adds the recording that docs/alerts.md asks operators for.
func inputSeries(phases []phase, asked []string) (list []map[string]string) {
	names := map[string]bool{}
	for _, p := range phases {
		for name := range p.last {
			if slices.Contains(asked, metricName.FindString(name)) {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var values []string
		for _, p := range phases {
			last, there := p.last[name]
			first, before := p.first[name]
			step := 0.
			switch {
			case strings.HasPrefix(name, "duefleet_oldest_due_seconds{") && last > 0:
				step = 60
			case before && last > first && counter.MatchString(name):
				step = last - first
			}
			if there {
				values = append(values, fmt.Sprintf("%s+%sx%d", plain(last), plain(step), held-1))
			} else {
				values = append(values, fmt.Sprintf("stale _x%d", held-1))
			}
		}
		list = append(list, map[string]string{"series": name, "values": strings.Join(values, " ")})
	}
	return append(list, map[string]string{"series": `duefleet_expected_scanners{job="d"}`,
		"values": fmt.Sprintf("2x%d", len(phases)*held)})
}

// metricName matches the name of a metric.
var metricName = regexp.MustCompile(`duefleet_\w+`)

// counter matches the series of a counter.
var counter = regexp.MustCompile(`^\w+_(total|bucket|count|sum)\{`)

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// exported matches a line of a page of metrics: name, labels, value.
var exported = regexp.MustCompile(`(?m)^(duefleet_\w+)(?:\{(.*)\})? (\S+)$`)

// scrape returns the series of all scanners that live, as Prometheus stores them. Its clock
// begins at 0.
func (tr *trial) scrape() map[string]float64 {
	tr.t.Helper()
	series := map[string]float64{}
	for i, s := range tr.scanners {
		var page bytes.Buffer
		if s.Get(check.Context(tr.t), "/metrics", &page) != nil {
			continue // it is dead
		}
		for _, line := range exported.FindAllStringSubmatch(page.String(), -1) {
			value, err := strconv.ParseFloat(line[3], 64)
			check.OK(tr.t, err)
			if strings.HasSuffix(line[1], "_timestamp_seconds") {
				value -= float64(time.Now().Unix())
			}
			labels := strings.Trim(line[2]+fmt.Sprintf(`,instance="%d",job="d"`, i), ",")
			series[line[1]+"{"+labels+"}"] = value
		}
	}
	return series
}
