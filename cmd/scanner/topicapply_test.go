package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/topicconfig"
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

// TestApplyStopsWhereSomebodyElseWrote: topics written before stay written, and the error
// names the written and the other topics.
func TestApplyStopsWhereSomebodyElseWrote(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.puts(map[string]string{"b": "rate: 1\n"})
	cfg, err := config.LoadConnections(o.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := topicconfig.Open(cfg.Consul, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := config.ReadTopics(writeFile(t, "topics.yaml", "a: {}\nb: {rate: 2}\nc: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	plans, err := client.PlanAll(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Done, "written", "topic", "set", "b", "rate=3", "--no-wait")
	done := func(topicconfig.Committed) error { return nil }
	err = client.CommitAll(t.Context(), plans, topicconfig.Author{Verb: "apply"}, done)
	if err == nil || !strings.HasPrefix(err.Error(),
		"written: topic a; not written: topics b, c: topic b was changed by somebody else meanwhile") ||
		cli.Code(err) != cli.Failed {
		t.Errorf("got %v", err)
	}
	o.wants(cli.Done, "{}", "topic", "get", "a")
	o.wants(cli.Done, "rate: 3", "topic", "get", "b")
	o.wants(cli.NotFound, "has no document", "topic", "get", "c")
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
