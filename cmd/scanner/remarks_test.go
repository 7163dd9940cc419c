package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/check"
)

// TestRemarksOfManyTopicsAreJoined: equal texts of up to three topics stay apart.
func TestRemarksOfManyTopicsAreJoined(t *testing.T) {
	t.Parallel()
	var all remarks
	for i := range 1000 {
		text := "good"
		if i%300 == 0 {
			text = fmt.Sprint("bad ", i)
		}
		all.add(fmt.Sprint("t", i), text, "")
	}
	all.add("x", "few", "; see x")
	check.Equal(t, "lines", strings.Join(all.lines("look there"), "\n"), `good: 996 topics: t1, t2, t3 and 993 more
topic t0: bad 0
topic t300: bad 300
scanners: 3 topics with others: t600, t900, x; look there`)
	check.Equal(t, "an error of none", asError(nil), nil)
}

// TestApplyOfManyTopicsIsReadable: it groups differences, names three topics in its question,
// and groups what it wrote and what scanners make of it. --all prints each difference.
func TestApplyOfManyTopicsIsReadable(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.member("one")
	before, file := map[string]string{}, ""
	for i := range 30 {
		name := fmt.Sprintf("topic-%02d", i)
		before[name] = "rate: 100\n"
		file += fmt.Sprintf("%s: {rate: 500, declare: {queue: %s.due}}\n", name, name)
	}
	o.puts(before)
	path := writeFile(t, "topics.yaml", file+"topic-new: {rate: 7}\n")
	o.golden("topic_apply_many", "topic", "apply", "-f", path, "--dry-run")
	o.wants(cli.Usage, "this would write topics topic-00, topic-01, topic-02 and 28 more: without", "topic", "apply", "-f",
		path)
	o.wants(cli.Done, "\ntopic-29.declare.queue: (none) -> topic-29.due\n", "topic", "apply", "-f", path, "--dry-run",
		"--all")
	o.wants(cli.Done, "written: 31 topics topic-00, topic-01, topic-02 and 28 more\napplied by 1 scanner: 31 topics: "+
		"topic-00, topic-01, topic-02 and 28 more\n", "topic", "apply", "-f", path, "--yes")
	o.wants(cli.Done, "rate: 500\n", "topic", "get", "topic-29")
}

// TestCheckCountsMistakesThatAreAlike: it has three of a kind, unless --all is given.
func TestCheckCountsMistakesThatAreAlike(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	documents := map[string]string{"other": "rate: -1\n"}
	file := ""
	for i := range 30 {
		name := fmt.Sprintf("topic-%02d", i)
		documents[name] = "# a comment\nshards: 0\n"
		file += name + ": {shards: 0}\n"
	}
	o.puts(documents)
	mistakes := func(want int, part string, args ...string) {
		t.Helper()
		code, text := o.call(args...)
		if got := strings.Count(text, "shards: must be"); code != cli.Failed || got != want || !strings.Contains(text, part) {
			t.Errorf("%v: code %d, %d mistakes of shards, want %d and %q:\n%s", args, code, got, want, part, text)
		}
	}
	mistakes(3, "27 more like these: topic-03:2, topic-04:2, topic-05:2 and 24 more; --all shows them\n", "check")
	mistakes(3, "31 of 31 topics' documents in consul have mistakes", "check")
	mistakes(30, "other:1: rate: must be", "check", "--all")
	path := writeFile(t, "topics.yaml", file)
	mistakes(3, "topics.yaml:6 and 24 more; --all shows them\n", "topic", "apply", "-f", path)
	mistakes(30, "scanner: 30 mistakes", "topic", "apply", "-f", path, "--all")
}
