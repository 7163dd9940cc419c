package problem

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// rows returns the rows of all kinds, in the order of the table in docs/alerts.md.
func rows() []row {
	servers, fleet := serverRows(), fleetRows()
	return slices.Concat(servers[:], fleet[:])
}

// TestVerdict: the worst problem decides, and notices leave a fleet healthy.
func TestVerdict(t *testing.T) {
	t.Parallel()
	notice, degraded, broken := New(RedisUnsafe, "", ""), New(TasksParked, "orders", ""), New(NoScanner, "", "")
	newer := Problem{Kind: "newer", Severity: "odd"}
	for _, c := range []struct {
		found []Problem
		want  Severity
	}{
		{nil, Healthy},
		{[]Problem{notice}, Healthy},
		{[]Problem{notice, degraded}, Degraded},
		{[]Problem{newer}, Degraded},
		{[]Problem{degraded, broken, notice}, Broken},
	} {
		if got := Verdict(c.found); got != c.want {
			t.Errorf("%v: %s, want %s", c.found, got, c.want)
		}
	}
}

// TestMerge: the same problem of two scanners is one, with both names and the earlier time.
// The worst comes first.
func TestMerge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	of := func(kind Kind, topic, shard, node string, since time.Time) Problem {
		p := New(kind, topic, "as "+node+" says")
		p.Shard, p.Nodes, p.Since = shard, []string{node}, since
		return p
	}
	got := Merge([]Problem{
		of(ShardUnserved, "orders", "2", "b", now),
		of(ShardUnserved, "orders", "3", "b", now),
		of(RedisUnsafe, "", "", "b", now),
		of(RabbitMQBlocked, "orders", "", "b", now),
		of(ShardUnserved, "orders", "2", "a", now.Add(-time.Minute)),
		of(ShardUnserved, "orders", "2", "a", now),
		of(ShardUnserved, "mails", "2", "a", time.Time{}),
	})
	var lines []string
	for _, p := range got {
		lines = append(lines, fmt.Sprint(p.Kind, " ", p.Topic, " ", p.Shard, " ", p.Nodes, " ", p.Since.Format("15:04"), " ",
			p.Text, " ", p.Advice != ""))
	}
	want := []string{
		"rabbitmq_blocked orders  [b] 10:00 as b says true",
		"shard_unserved mails 2 [a] 00:00 as a says true",
		"shard_unserved orders 2 [a b] 09:59 as b says true",
		"shard_unserved orders 3 [b] 10:00 as b says true",
		"redis_unsafe   [b] 10:00 as b says true",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// TestATrackerKeepsWhenAProblemBegan: while a problem lasts, it has its first time. Once it
// was over, it begins again.
func TestATrackerKeepsWhenAProblemBegan(t *testing.T) {
	t.Parallel()
	var tracker Tracker
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	since := func(after time.Duration, found ...Problem) (all []string) {
		for _, p := range tracker.Track(now.Add(after), found) {
			all = append(all, p.Topic+" "+p.Since.Format("05"))
		}
		return all
	}
	orders, mails := New(ExchangeMissing, "orders", ""), New(ExchangeMissing, "mails", "")
	known := orders
	known.Topic, known.Since = "known", now.Add(30*time.Second)
	for _, c := range []struct{ got, want []string }{
		{since(0, orders), []string{"orders 00"}},
		{since(time.Second, mails, orders), []string{"mails 01", "orders 00"}},
		{since(2*time.Second, mails, known), []string{"mails 01", "known 30"}},
		{since(3*time.Second, orders), []string{"orders 03"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestLineNamesThoseThatDiffer: a problem of all scanners needs no names.
func TestLineNamesThoseThatDiffer(t *testing.T) {
	t.Parallel()
	p := New(TasksParked, "orders", "text")
	for want, nodes := range map[string][]string{
		"topic orders: text":                {},
		"scanner a: topic orders: text":     {"a"},
		"scanners a, b: topic orders: text": {"a", "b"},
	} {
		p.Nodes = nodes
		if got := p.Line(3); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if p.Nodes = []string{"a"}; p.Line(1) != "topic orders: text" {
		t.Errorf("the only one: %q", p.Line(1))
	}
}

// alerts is the page that has the table of kinds.
var alerts = filepath.Join("..", "..", "docs", "alerts.md")

// TestTheTableInDocsIsCurrent: docs/alerts.md has the table of all kinds, and a heading for
// each of their anchors.
func TestTheTableInDocsIsCurrent(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(alerts)
	check.OK(t, err)
	page := string(raw)
	const begin, end = "<!-- table of problems -->\n", "<!-- end of the table of problems -->\n"
	before, rest, begun := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("%s has no place for the table", alerts)
	}
	check.Golden(t, alerts, before+begin+table()+end+after,
		"go test ./internal/problem -run "+t.Name()+" -update")
	for _, r := range rows() {
		if !slices.Contains(anchors(page), r.anchor) {
			t.Errorf("%s: docs/alerts.md has no heading for #%s", r.kind, r.anchor)
		}
	}
}

// TestAnchor: an unknown kind has the anchor of the table of all problems.
func TestAnchor(t *testing.T) {
	t.Parallel()
	if got := RedisFull.Anchor(); got != "duefleetredisfull" {
		t.Errorf("got %q", got)
	}
	if got := Kind("of_a_newer_version").Anchor(); got != "problems" {
		t.Errorf("unknown kind: got %q", got)
	}
}

// anchors returns the anchors of a page's headings.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
	}
	return all
}

// table returns the table of kinds in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("\n| kind | severity | effect on tasks | what to do | alert |\n|---|---|---|---|---|\n")
	for _, r := range rows() {
		what := fmt.Sprintf("[%s](#%s)", r.advice, r.anchor)
		if r.anchor == "problems" {
			what = r.advice
		}
		alert := r.alert
		if !strings.HasPrefix(alert, noAlert) {
			names := strings.Fields(alert)
			for i, name := range names {
				names[i] = fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
			}
			alert = strings.Join(names, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.kind, r.severity, r.effect, what, alert)
	}
	b.WriteString("\n")
	return b.String()
}

// TestEachKindIsDescribedOnce: the table has no kind twice, and no cell is empty.
func TestEachKindIsDescribedOnce(t *testing.T) {
	t.Parallel()
	seen := map[Kind]bool{}
	for _, r := range rows() {
		if seen[r.kind] || r.kind == "" || r.severity == "" || r.effect == "" || r.advice == "" || r.anchor == "" ||
			r.alert == "" {
			t.Errorf("%+v is there twice, or lacks something", r)
		}
		seen[r.kind] = true
	}
	source, err := os.ReadFile("kinds.go")
	check.OK(t, err)
	if n := len(regexp.MustCompile(`(?m) Kind = "`).FindAll(source, -1)); n != len(seen) {
		t.Errorf("%d kinds, and %d are described", n, len(seen))
	}
}

// noAlert begins the reason why a kind has no alert.
const noAlert = "none: "

// TestEachKindHasAnAlert: the alerts that the table names exist. The two alerts on
// duefleet_problem have the kinds that name them: one pages, for harm to tasks.
func TestEachKindHasAnAlert(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "duefleet.rules.yaml"))
	check.OK(t, err)
	rules := map[string]string{}
	for _, rule := range strings.Split(string(raw), "\n      - alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		rules[name] = rest
	}
	generic := map[string][]string{}
	for _, r := range rows() {
		if why, none := strings.CutPrefix(r.alert, noAlert); none && why != "" {
			continue
		}
		for _, name := range strings.Fields(r.alert) {
			if rules[name] == "" {
				t.Errorf("%s: there is no alert %s", r.kind, name)
			}
			generic[name] = append(generic[name], string(r.kind))
			if name == "DuefleetProblem" && r.effect == None || name == "DuefleetProblemMinor" && r.effect != None {
				t.Errorf("%s: its effect is %s, so %s is wrong", r.kind, r.effect, name)
			}
		}
	}
	kinds := regexp.MustCompile(`duefleet_problem\{kind=~"([^"]+)"`)
	for _, name := range []string{"DuefleetProblem", "DuefleetProblemMinor"} {
		var asked []string
		if m := kinds.FindStringSubmatch(rules[name]); m != nil {
			asked = strings.Split(m[1], "|")
		}
		slices.Sort(generic[name])
		if !slices.Equal(asked, generic[name]) {
			t.Errorf("%s asks for %q, and the table has %q", name, asked, generic[name])
		}
	}
}
