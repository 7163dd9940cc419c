package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/heartbeat"
)

// examined returns the findings of `scanner doctor` and its exit code.
func (o *operator) examined() (findings []doctor.Finding, code int) {
	o.t.Helper()
	code, text := o.call("doctor", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&findings); err != nil {
		o.t.Fatalf("%v: %s", err, text)
	}
	return findings, code
}

// found returns the findings of a check, one per line: state, problem and fix.
func (o *operator) found(check string) string {
	o.t.Helper()
	findings, _ := o.examined()
	var lines []string
	for _, f := range findings {
		if f.Check == check {
			lines = append(lines, string(f.State)+": "+f.What+" -> "+f.Fix)
		}
	}
	return strings.Join(lines, "\n")
}

// finds checks that doctor has one finding of a check, which begins with want. An empty
// want means no finding.
func (o *operator) finds(what, name, want string) {
	o.t.Helper()
	check.Line(o.t, what+": "+name, o.found(name), want)
}

// worksBy makes a member report its applied documents, in its heartbeat and in Consul.
func (o *operator) worksBy(name string, documents map[string]string, more balance.Member) {
	o.t.Helper()
	says := o.member(name)
	more.Applied, more.Documents = math.MaxInt64, config.HashAll(heartbeat.Digests(documents))
	says.Store(&more)
	client, prefix := o.consul()
	heartbeat.WriteApplied(o.t, client, prefix, name, documents)
	o.heard(name, func(m balance.Member) bool { return m.Documents == more.Documents })
}

// TestDoctorMendsABrokenDocument: doctor shows the mistake with its line, and doesn't take
// the topic for an orphan. Its commands work and remove no topic.
func TestDoctorMendsABrokenDocument(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "undone", "rate=5", "--no-wait")
	o.puts(map[string]string{
		"t39": "shards: 2\ndecl:\n  queue: t39.due\n", "both": "shards: 0\nrat: 5\n", "undone": "rate: many\n",
		"text": "shards: [",
	})
	for _, topic := range []string{"t39", "both"} {
		o.serve(topic, 1)
	}
	one := o.member("one")
	one.Store(&balance.Member{Applied: math.MaxInt64, Errors: map[string]string{"t39": "unknown key"},
		Problems: []problem.Problem{problem.New(problem.DocumentRefused, "t39", "unknown key")}})
	o.heard("one", func(m balance.Member) bool { return len(m.Errors) > 0 })
	findings, code := o.examined()
	for _, f := range findings {
		if strings.Contains(f.Fix, "topic rm") || strings.Contains(f.What, "orphan") {
			t.Errorf("%s: %s -> %s", f.Check, f.What, f.Fix)
		}
	}
	if code != cli.Failed {
		t.Errorf("exit code %d", code)
	}
	for topic, want := range map[string]string{
		"t39": "fail: t39:2: decl: unknown key; scanner one refuses it, and uses the last good one if there is one " +
			"-> scanner topic set t39 decl= --config ",
		"both":   "rat: unknown key; did you mean rate? -> scanner topic set both shards=VALUE rat= --config ",
		"undone": "rate: must be a whole number; or, back to the document from before, scanner topic undo undone --config ",
		"text":   "/topics/text in consul",
	} {
		got := o.found("topic " + topic + " document")
		want, undo, _ := strings.Cut(want, "; or, ")
		if !strings.Contains(got, want) || !strings.Contains(got, undo) || strings.Count(got, "fail: ") != 1 {
			t.Errorf("%s: %s\nwant %s and %q", topic, got, want, undo)
		}
	}
	o.wants(cli.Done, "topic t39 written", "topic", "set", "t39", "decl=", "--no-wait")
	o.wants(cli.Done, "topic both written", "topic", "set", "both", "shards=2", "rat=", "--no-wait")
	o.wants(cli.Done, "topic undone written", "topic", "undo", "undone", "--no-wait")
	one.Store(&balance.Member{Applied: math.MaxInt64})
	o.heard("one", func(m balance.Member) bool { return len(m.Errors) == 0 })
	o.finds("after the fix", "topic t39 document", "")
}

// TestDoctorRemovesNoTopicOfABrokenFile: with a broken file the topics aren't known.
func TestDoctorRemovesNoTopicOfABrokenFile(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {orders: {shards: 0}}\n")
	o.serve("orders", 1)
	o.finds("of a broken file", "topic orders document", "")
	if got := o.found("config"); !strings.Contains(got, "shards: must be 1 to 4096") {
		t.Error(got)
	}
}

// TestConsulAwayIsOneDegradedState: doctor and status report it once, for no topic.
func TestConsulAwayIsOneDegradedState(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	documents := map[string]string{"orders": "rate: 5\n", "mails": "{}"}
	o.puts(documents)
	for topic := range documents {
		o.serve(topic, 1)
	}
	o.worksBy("one", documents, balance.Member{Away: true, Errors: map[string]string{"": "consul answers 500"},
		Problems: []problem.Problem{problem.Away(problem.ConsulAway, "consul answers 500")}})
	o.worksBy("two", documents, balance.Member{})
	code, text := o.call("status", "--exit-code")
	const degraded = "scanner one: the source of topics can't be read, the last good settings stay in force: consul " +
		"answers 500"
	if code != cli.Unhealthy || strings.Count(text, "consul answers 500") != 2 ||
		!strings.Contains(text, "! "+degraded+"\n") || !strings.HasSuffix(text, "not healthy: "+degraded+"\n") {
		t.Errorf("code %d: %s", code, text)
	}
	if got := o.found("fleet configuration"); !strings.HasPrefix(got, "fail: degraded: "+degraded) ||
		strings.Contains(got, "\n") || strings.Contains(got, "refuses") {
		t.Errorf("doctor: %s", got)
	}
}

// follows runs the first command of doctor's advice about a check.
func (o *operator) follows(check string) {
	o.t.Helper()
	_, advice, _ := strings.Cut(o.found(check), " -> scanner ")
	advice, _, _ = strings.Cut(advice, ";")
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(advice, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	if len(args) < 3 {
		o.t.Fatalf("no advice about %s: %q", check, o.found(check))
	}
	args = args[:len(args)-2] // without --config, which call adds
	o.wants(cli.Done, "written", append(args, "--no-wait")...)
}

// TestAdviceAboutADocumentLosesNoSetting: a document that can't be read is brought back with
// all settings that were in force.
func TestAdviceAboutADocumentLosesNoSetting(t *testing.T) {
	t.Parallel()
	settings := []string{"shards=8", "rate=50", "window=77", "declare.queue=q.due", "declare.dead_letter=q.dead"}
	for name, known := range map[string]bool{"with a history": true, "without a history": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newConsulOperator(t)
			o.wants(cli.Done, "written", append([]string{"topic", "set", "orders", "--no-wait"}, settings...)...)
			client, prefix := o.consul()
			pair, _, err := client.KV().Get(prefix+"/topics/orders", nil)
			if err != nil || pair == nil {
				t.Fatal(err)
			}
			good := string(pair.Value)
			o.serve("orders", 8)
			if err := o.store.Registry().SaveDocument(t.Context(), "orders", pair.Value); err != nil {
				t.Fatal(err)
			}
			if !known {
				if _, err := client.KV().DeleteTree(prefix+"/history/", nil); err != nil {
					t.Fatal(err)
				}
			}
			o.puts(map[string]string{"orders": "shards: [\n"})
			o.follows("topic orders document")
			pair, _, err = client.KV().Get(prefix+"/topics/orders", nil)
			if err != nil || pair == nil {
				t.Fatal(err)
			}
			before, _ := config.ParseTopic("orders", []byte(good))
			after, err := config.ParseTopic("orders", pair.Value)
			if lost := config.Diff(before, after); err != nil || len(lost) > 0 {
				t.Errorf("%v: the advice changed %v; the document is now\n%s", err, lost, pair.Value)
			}
		})
	}
}

// TestManyFindingsOfOneKindAreCounted: the table shows three, and JSON all.
func TestManyFindingsOfOneKindAreCounted(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	const bad, unreadable = 1000, 7
	documents := map[string]string{}
	for i := range bad {
		documents[fmt.Sprintf("bad %03d", i)] = "{}"
	}
	for i := range unreadable {
		documents[fmt.Sprintf("unreadable-%d", i)] = "shards: ["
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(documents)), 60) { // Consul takes 64 in one transaction
		some := map[string]string{}
		for _, name := range chunk {
			some[name] = documents[name]
		}
		o.puts(some)
	}
	findings, _ := o.examined()
	broken := 0
	for _, f := range findings {
		if f.State == doctor.Fail && strings.HasSuffix(f.Check, " document") {
			broken++
		}
	}
	if broken != bad+unreadable {
		t.Errorf("JSON has %d findings, want %d", broken, bad+unreadable)
	}
	code, text := o.call("doctor")
	if code != cli.Failed || strings.Count(text, " document ") != 4 || !strings.Contains(text, "1004 more like these: "+
		"topics bad 003, bad 004, bad 005, bad 006, bad 007 and 999 more; -o json shows all") {
		t.Errorf("code %d: %.4000s", code, text)
	}
}
