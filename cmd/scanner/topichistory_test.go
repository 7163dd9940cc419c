package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
)

// documentHistory returns a history with changes of every kind.
var documentHistory = consul.History{Topic: "orders", Changes: []consul.Change{
	{Number: 4, Document: []byte("shards: 4\n")},
	{Number: 5, At: now.Add(-time.Hour), By: "ann@ops-1", Verb: "set",
		Document: []byte("shards: 8\ndeclare: {queue: q}\n")},
	{Number: 6, At: now.Add(-time.Minute), By: "ann@ops-1", Verb: "set", Document: []byte("shards: 8\n")},
	{Number: 7, At: now.Add(-time.Minute), By: "bob@ops-2", Verb: "apply", Reason: "as the\nrunbook says",
		Document: []byte("# eight\nshards: 8\n")},
	{Number: 8, Document: []byte("shards: 0\n\x1b")},
	{Number: 9, At: now, By: "bob@ops-2", Verb: "undo", Document: []byte("shards: 8\n")},
	{Number: 10, At: now, By: "bob@ops-2", Verb: "set", Dropped: true},
	{Number: 11, At: now, By: "bob@ops-2", Verb: "rm", Removed: true},
	{Number: 12, At: now, By: "bob@ops-2", Verb: "set", Document: []byte("{}\n")},
	{Number: 13, At: now, By: "bob@ops-2", Verb: "set", Dropped: true},
	{Number: 14, At: now, By: "bob@ops-2", Verb: "apply", Document: []byte("rate: 5\n")},
}}

// TestTheTableOfAHistory compares the table with testdata.
func TestTheTableOfAHistory(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := printHistory(&out, topicconfig.NewHistoryLines(documentHistory)); err != nil {
		t.Fatal(err)
	}
	isGolden(t, "topic_history", out.String())
}

// told returns a topic's history as it is listed: number, verb and what of each change.
func (o *operator) told(topic string) (changes []string) {
	o.t.Helper()
	code, text := o.call("topic", "history", topic, "-o", "json")
	var lines []topicconfig.HistoryLine
	if err := json.Unmarshal([]byte(text), &lines); err != nil || code != cli.Done {
		o.t.Fatalf("topic history: %d, %v, %s", code, err, text)
	}
	for _, l := range lines {
		if (l.By == "") != l.At.IsZero() || (l.By == "") != (l.Verb == "") || l.By != "" &&
			l.By != topicconfig.Caller(os.Getenv) {
			o.t.Errorf("change %d is by %q, at %s, %q", l.Number, l.By, l.At, l.Verb)
		}
		changes = append(changes, strings.TrimSpace(l.Verb+" "+l.Text()))
	}
	return changes
}

func (o *operator) wantsHistory(topic string, want ...string) {
	o.t.Helper()
	if got := o.told(topic); strings.Join(got, "; ") != strings.Join(want, "; ") {
		o.t.Errorf("the history of topic %s is %q, want %q", topic, got, want)
	}
}

// TestUndoBringsBackTheDocumentFromBefore: undo restores the document byte for byte, also
// after a removal. A second undo reverts the first.
func TestUndoBringsBackTheDocumentFromBefore(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	first := "# ours\nrate: 5 # a second\n"
	o.puts(map[string]string{"orders": first})
	o.wants(cli.NotFound, "topic none has no document", "topic", "history", "none")
	o.wants(cli.NotFound, "topic none has no document", "topic", "undo", "none")
	o.wants(cli.Failed, "its history has no document from before the one in force", "topic", "undo", "orders")
	o.wantsHistory("orders", "made: rate=5")

	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=6", "shards=8", "--no-wait")
	o.wants(cli.Done, "paused", "topic", "pause", "orders", "--no-wait")
	o.wants(cli.Done, "nothing to change", "topic", "set", "orders", "rate=6", "--no-wait")
	o.wantsHistory("orders", "made: rate=5", "set shards: 4 -> 8, rate: 5 -> 6", "pause paused: false -> true")
	o.wants(cli.Done, "topic orders: undoes change 3, pause by "+topicconfig.Caller(os.Getenv)+" at 2", "topic", "undo",
		"orders", "--dry-run")
	o.wants(cli.Done, "orders.paused: true -> false\ntopic orders: a dry run, nothing was written\n", "topic", "undo",
		"orders", "--dry-run")
	o.wants(cli.Done, "paused: true", "topic", "get", "orders")
	o.wants(cli.Done, "orders.paused: true -> false\ntopic orders written\ntopic orders: no scanner runs", "topic", "undo",
		"orders")
	o.wants(cli.Done, "orders.paused: false -> true\n", "topic", "undo", "orders", "--no-wait")
	o.wants(cli.Done, "paused: true", "topic", "get", "orders")

	o.wants(cli.Done, "removed", "topic", "rm", "orders", "--yes")
	o.wants(cli.NotFound, "has no document", "topic", "get", "orders")
	o.wants(cli.Done, "topic orders is back; tasks that were purged with it are not", "topic", "undo", "orders",
		"--no-wait")
	if _, text := o.call("topic", "get", "orders"); text != "# ours\nrate: 6 # a second\nshards: 8\npaused: true\n" {
		t.Errorf("it is back as %q", text)
	}
	o.wants(cli.Failed, "after change 6 it had no document; `scanner topic rm orders` removes it", "topic", "undo",
		"orders")
	o.wantsHistory("orders", "made: rate=5", "set shards: 4 -> 8, rate: 5 -> 6", "pause paused: false -> true",
		"undo paused: true -> false",
		"undo paused: false -> true", "rm removed", "undo made: shards=8, rate=6, paused=true")
}

// TestWhatAnotherToolWroteIsInTheHistory: the history has it before it is replaced, and
// undo reverts it like any other change. Undo skips broken documents.
func TestWhatAnotherToolWroteIsInTheHistory(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	o.wants(cli.Failed, "its history has no document from before", "topic", "undo", "orders")
	o.puts(map[string]string{"orders": "rate: 6"})
	o.wantsHistory("orders", "set made: rate=5", "rate: 5 -> 6")
	o.wants(cli.Done, "orders: undoes change 2, which another tool made\norders.rate: 6 -> 5\n", "topic", "undo", "orders",
		"--no-wait")
	o.wantsHistory("orders", "set made: rate=5", "rate: 5 -> 6", "undo rate: 6 -> 5")
	o.puts(map[string]string{"orders": "rate: many"})
	o.wants(cli.Done, "orders.rate: (none) -> 7", "topic", "set", "orders", "rate=7", "--replace", "--no-wait")
	o.wants(cli.Failed, "the document of change 4, it has mistakes: orders:1: rate: must be", "topic", "undo", "orders",
		"--to", "4")
	o.wants(cli.Done, "rate: 7\n", "topic", "get", "orders")
	o.wants(cli.Done, "undoes change 5, set by "+topicconfig.Caller(os.Getenv), "topic", "undo", "orders", "--dry-run")
	o.wants(cli.Done, "topic orders: passes over change 4, whose document has mistakes\norders.rate: 7 -> 5\ntopic "+
		"orders written\n", "topic", "undo", "orders", "--no-wait")
}

// TestUndoAfterABrokenWriteAndAPause: the pause restored the last good document. Undo goes
// back to that, not to the broken one.
func TestUndoAfterABrokenWriteAndAPause(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	o.serve("orders", 4)
	kept := o.store.Registry().KeepDocument(t.Context(), "orders", "", []byte("rate: 5\n")) // as a scanner does
	check.OK(t, kept)
	o.puts(map[string]string{"orders": "rate: many"})
	o.wants(cli.Done, "written", "topic", "pause", "orders", "--no-wait")
	o.wants(cli.Done, "topic orders: passes over change 2, whose document has mistakes\norders.paused: true -> "+
		"false\ntopic orders written\n", "topic", "undo", "orders", "--no-wait")
	o.wants(cli.Done, "rate: 5\n", "topic", "get", "orders")
}

// TestUndoGoesBackToAnyChange: --to restores any change, and undo names the changes that
// it reverts.
func TestUndoGoesBackToAnyChange(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	for _, rate := range []string{"rate=5", "rate=6", "rate=7"} {
		o.wants(cli.Done, "written", "topic", "set", "orders", rate, "--no-wait")
	}
	o.wants(cli.Usage, "changes count from 1", "topic", "undo", "orders", "--to", "0")
	o.wants(cli.Failed, "its history has no change 4, but 1 to 3", "topic", "undo", "orders", "--to", "4")
	o.wants(cli.Done, "nothing to change, that document is in force", "topic", "undo", "orders", "--to", "3")
	by := ", set by " + topicconfig.Caller(os.Getenv)
	o.wants(cli.Done, "topic orders: undoes change 3"+by, "topic", "undo", "orders", "--to", "1", "--dry-run")
	o.wants(cli.Done, "topic orders: undoes change 2"+by, "topic", "undo", "orders", "--to", "1", "--dry-run")
	o.wants(cli.Done, "orders.rate: 7 -> 5\ntopic orders written\n", "topic", "undo", "orders", "--to", "1", "--no-wait")
	o.wants(cli.Done, "topic orders removed", "topic", "rm", "orders", "--yes")
	o.wants(cli.Failed, "after change 5 it had no document", "topic", "undo", "orders", "--to", "5")
	o.wants(cli.Done, "topic orders is back", "topic", "undo", "orders", "--to", "2", "--no-wait")
	o.wants(cli.Done, "rate: 6\n", "topic", "get", "orders")
}

// TestUndoTellsWhatScannersMakeOfIt: undo reports whether scanners apply it, as set does.
func TestUndoTellsWhatScannersMakeOfIt(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.member("one")
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=6", "--no-wait")
	o.wants(cli.Done, "topic orders: applied by 1 scanner", "topic", "undo", "orders")
}
