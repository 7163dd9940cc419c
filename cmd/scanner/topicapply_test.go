package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
)

// applied is the text of a file of topics.
const applied = "orders: {shards: 8, declare: {queue: q}}\nmails: {rate: 5}\nsame: {rate: 1}\nbroken: {}\n"

// TestApplyMakesTopicsWhatAFileSays: apply first prints the difference of all topics. It
// writes only with --yes. It leaves alone topics that aren't in the file or don't differ.
func TestApplyMakesTopicsWhatAFileSays(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	before := map[string]string{"orders": "shards: 4 # few\n", "same": "rate: 1 # ours\n", "other": "rate: 2\n",
		"broken": "shards: 0\n"}
	o.puts(before)
	path := writeFile(t, "topics.yaml", applied)
	o.golden("topic_apply", "topic", "apply", "-f", path, "--dry-run")
	o.wants(cli.Usage, "this would write topics broken, mails, orders: without a terminal to ask on it needs --yes; "+
		"nothing was written", "topic", "apply", "-f", path)
	o.wants(cli.NotFound, "has no document", "topic", "get", "mails")
	o.wants(cli.Done, "shards: 4 # few\n", "topic", "get", "orders")
	o.wants(cli.Done, "topic broken written\ntopic mails written\ntopic orders written\ntopic broken: no scanner runs",
		"topic", "apply", "-f", path, "--yes")
	for topic, want := range map[string]string{
		"orders": "shards: 8\ndeclare:\n  queue: q\n", "mails": "rate: 5\n", "same": before["same"], "other": before["other"],
		"broken": "{}\n",
	} {
		if code, text := o.call("topic", "get", topic); code != cli.Done || text != want {
			t.Errorf("topic %s is %q, want %q", topic, text, want)
		}
	}
	o.wants(cli.Done, "as in the file already: 4 of 4 topics\nnothing to change\n", "topic", "apply", "-f", path)
	o.wantsHistory("mails", "apply made: rate=5")
	configuration := writeFile(t, "topics.yaml", "redis: {addrs: [nowhere:1]}\ntopics:\n  mails: {rate: 6}\n")
	o.wants(cli.Done, "mails.rate: 5 -> 6\ntopic mails written\n", "topic", "apply", "--file", configuration, "--yes",
		"--no-wait")
}

// TestApplyChecksAllBeforeTheFirst: with a mistake anywhere in the file apply writes
// nothing. It prints every mistake with its line.
func TestApplyChecksAllBeforeTheFirst(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	for text, part := range map[string]string{
		"a: {rate: 1}\nb: {shards: 0}\nc: {rat: 1}\n": "topics.yaml:3: c.rat: unknown key; did you mean rate?\nscanner: 2 " +
			"mistakes",
		"topics:\n  a: {rate: 1}\n  b: {shards: 0}\n": "topics.yaml:3: topics.b.shards: must be 1 to 4096",
		"topics: {a: {}}\nredes: {}\n":                "topics.yaml:2: redes: unknown key",
		"a: {}\n'b/c': {}\n":                          "topics.yaml:2: b/c: topic: must be 1 to 64",
		"- a\n":                                       "topics.yaml:1: must be keys with values",
		"a: [\n":                                      "not valid YAML",
		"":                                            "no topics in ",
		"topics: {}\n":                                "no topics in ",
	} {
		o.wants(cli.Failed, part, "topic", "apply", "--yes", "-f", writeFile(t, "topics.yaml", text))
	}
	o.wants(cli.Failed, "no such file", "topic", "apply", "--yes", "-f", filepath.Join(t.TempDir(), "none"))
	o.wants(cli.Usage, "name a file", "topic", "apply", "--yes")
	if code, text := o.call("topic", "ls", "-o", "json"); code != cli.Done || text != "[]\n" {
		t.Errorf("after files with mistakes: %d, %s", code, text)
	}
}

// documents opens the documents in Consul.
func (o *operator) documents() topicconfig.Documents {
	o.t.Helper()
	cfg, err := config.LoadConnections(o.config, nil)
	check.OK(o.t, err)
	client, err := topicconfig.Open(cfg.Consul, slog.New(slog.DiscardHandler))
	check.OK(o.t, err)
	return client
}

// TestApplyStopsWhereSomebodyElseWrote: topics written meanwhile stay written, and the error
// names the written and the other topics.
func TestApplyStopsWhereSomebodyElseWrote(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.puts(map[string]string{"b": "rate: 1\n"})
	client := o.documents()
	docs, err := config.ReadTopics(writeFile(t, "topics.yaml", "a: {}\nb: {rate: 2}\nc: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	plans, err := client.PlanAll(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Done, "written", "topic", "set", "b", "rate=3", "--no-wait")
	written, err := client.CommitAll(t.Context(), plans, topicconfig.Author{Verb: "apply"}, func() {})
	o.wants(cli.Done, "rate: 3", "topic", "get", "b")
	var done, left []string
	for _, topic := range []string{"a", "b", "c"} { // a and c are written at the same time as b, or not at all
		names := &left
		if slices.ContainsFunc(written, func(c topicconfig.Committed) bool { return c.Document.Name == topic }) {
			names = &done
		}
		*names = append(*names, topic)
		if code, _ := o.call("topic", "get", topic); topic != "b" && (code == cli.Done) != (names == &done) {
			t.Errorf("topic %s: written %t, and get ends with %d", topic, names == &done, code)
		}
	}
	phrase := func(topics []string) string {
		return []string{"no topic", "topic ", "topics ", "topics "}[len(topics)] + strings.Join(topics, ", ")
	}
	if want := "written: " + phrase(done) + "; not written: " + phrase(left) + ": topic b was changed by somebody else " +
		"meanwhile"; err == nil || !strings.HasPrefix(err.Error(), want) || cli.Code(err) != cli.Failed {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestManyTopicsAreWrittenWithTheirHistories: each change is the next one of its topic. An error
// names three topics and counts the others.
func TestManyTopicsAreWrittenWithTheirHistories(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	const topics = 50
	file := func(rate int) string {
		var text strings.Builder
		for i := range topics {
			fmt.Fprintf(&text, "t%02d: {rate: %d}\n", i, rate)
		}
		return writeFile(t, "topics.yaml", text.String())
	}
	o.wants(cli.Done, "written: 50 topics t00, t01, t02 and 47 more", "topic", "apply", "--yes", "--no-wait", "-f",
		file(1))
	client := o.documents()
	docs, err := config.ReadTopics(file(2))
	check.OK(t, err)
	plans, err := client.PlanAll(t.Context(), docs)
	check.OK(t, err)
	wrote := 0
	written, err := client.CommitAll(t.Context(), plans, topicconfig.Author{Verb: "apply"}, func() { wrote++ })
	check.OK(t, err)
	if wrote != topics || len(written) != topics {
		t.Errorf("got %d calls and %d documents", wrote, len(written))
	}
	for _, doc := range docs {
		h, now, err := client.History(t.Context(), doc.Name)
		newest, _ := h.Newest()
		if err != nil || newest.Number != 2 || newest.Verb != "apply" || newest.By == "" || now.Topic.Rate != 2 {
			t.Errorf("topic %s: %v, %+v, %+v", doc.Name, err, newest, now.Topic)
		}
	}
	_, err = client.CommitAll(t.Context(), plans, topicconfig.Author{Verb: "apply"}, func() {}) // all are outdated
	const want = "written: no topic; not written: topics t00, t01, t02 and 47 more: topic t"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// TestApplyTellsOfEachTopic: apply reports on every topic, and fails if scanners can't
// deliver one of them.
func TestApplyTellsOfEachTopic(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	says := o.member("one")
	m := *says.Load()
	m.Blocked = map[string]string{"a": "not_found"}
	m.Problems = []problem.Problem{problem.New(problem.ExchangeMissing, "a", "no exchange")}
	says.Store(&m)
	o.heard("one", func(m balance.Member) bool { return len(m.Blocked) > 0 })
	path := writeFile(t, "topics.yaml", "a: {}\nb: {}\n")
	code, text := o.call("topic", "apply", "--yes", "-f", path)
	if code != cli.Failed || !strings.Contains(text, "topic b: applied by 1 scanner\n") ||
		!strings.Contains(text, "topic a: blocked by 1 scanner: no exchange") {
		t.Errorf("got %d, %s", code, text)
	}
}
