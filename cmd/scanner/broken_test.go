package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// consul returns a client of the operator's Consul, and the prefix of the fleet's keys.
func (o *operator) consul() (client *api.Client, prefix string) {
	o.t.Helper()
	cfg, err := config.LoadConnections(o.config, nil)
	check.OK(o.t, err)
	return fixture.Consul(o.t, cfg.Consul.Addr), cfg.Consul.Prefix
}

// puts writes documents as another client of Consul can, and returns a function that
// lists the documents.
func (o *operator) puts(documents map[string]string) (names func() string) {
	o.t.Helper()
	client, prefix := o.consul()
	folder := prefix + "/topics/"
	fixture.WriteDocuments(o.t, client, prefix, documents)
	return func() string {
		keys, _, err := client.KV().Keys(folder, "", nil)
		if err != nil {
			o.t.Fatal(err)
		}
		return strings.ReplaceAll(strings.Join(keys, " "), folder, "")
	}
}

// TestADocumentWithABadNameIsRemovedAndNoOther: this also holds for names that a URL would
// turn into another key.
func TestADocumentWithABadNameIsRemovedAndNoOther(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	bad := []string{"a//b", "a/../b", "a b", "ä", "50%2f", "a?b#c", strings.Repeat("x", 65)}
	documents := map[string]string{"b": "{}", "a/b": "{}", "50/": "", "a": "{}"}
	for _, name := range bad {
		documents[name] = "{}"
	}
	names := o.puts(documents)
	for _, name := range bad {
		o.wants(cli.Usage, "which is no topic's", "topic", "rm", name)
		o.wants(cli.Done, "removed", "topic", "rm", name, "--yes")
		o.wants(cli.NotFound, "no document in consul is named", "topic", "rm", name, "--yes")
	}
	if left := names(); left != "50/ a a/b b" {
		t.Errorf("left are %q", left)
	}
	o.more = ""
	o.configure(t, "")
	o.wants(cli.Usage, "must be 1 to 64 of", "topic", "rm", "a b", "--yes")
	o.wants(cli.Usage, "name a topic", "topic", "rm")
}

// TestABrokenDocumentIsPausedByTheLastGoodOne: the last good document, which Redis keeps
// and scanners use, replaces the broken one. The broken one stays in the history.
func TestABrokenDocumentIsPausedByTheLastGoodOne(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	const good = "shards: 2\nrate: 5 # a second\n"
	for topic, broken := range map[string]string{"orders": "shards: 0\nrate: 5\n", "mails": "shards: ["} {
		o.puts(map[string]string{topic: broken})
		if err := o.store.Registry().SaveDocument(t.Context(), topic, []byte(good)); err != nil {
			t.Fatal(err)
		}
		o.wants(cli.Done, topic+".paused: false -> true", "topic", "pause", topic)
		o.wants(cli.Done, good+"paused: true\n", "topic", "get", topic)
		o.wants(cli.Done, strings.TrimSuffix(strconv.Quote(broken), `"`), "topic", "history", topic, "-o", "json")

		o.puts(map[string]string{topic: broken})
		o.wants(cli.Done, "the last good one, which is in force, takes its place", "topic", "pause", topic)
		o.puts(map[string]string{topic: broken})
		if err := o.store.Registry().SaveDocument(t.Context(), topic, []byte(good+"paused: true\n")); err != nil {
			t.Fatal(err)
		}
		o.wants(cli.Done, "nothing to change", "topic", "pause", topic)
		o.wants(cli.Done, broken, "topic", "get", topic)
		o.wants(cli.Done, topic+".paused: true -> false", "topic", "resume", topic)
	}
	o.puts(map[string]string{"orders": "shards: 0\n"})
	o.configure(t, "redis: {addrs: ['127.0.0.1:1']}\n")
	o.wants(cli.Failed, "the last good one can't be read from Redis", "topic", "pause", "orders")
	o.wants(cli.Done, "shards: 0\n", "topic", "get", "orders")
}

// TestABrokenDocumentThatNoScannerAppliedIsMended: pause says how to fix the document; set
// fixes a line or all of it.
func TestABrokenDocumentThatNoScannerAppliedIsMended(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.puts(map[string]string{"orders": "shards: 0\nrate: 5\n", "mails": "shards: ["})
	for _, topic := range []string{"orders", "mails"} {
		o.wants(cli.Failed, "scanners would not read it: its document has mistakes", "topic", "pause", topic)
		o.wants(cli.Failed, "`scanner topic set "+topic+" KEY=VALUE... paused=true`", "topic", "pause", topic)
		o.wants(cli.Failed, "--replace", "topic", "set", topic, "rate=1")
	}
	o.wants(cli.Done, "topic orders written", "topic", "set", "orders", "shards=2", "paused=true")
	o.wants(cli.Done, "shards: 2\nrate: 5\npaused: true\n", "topic", "get", "orders")
	o.wants(cli.Done, "mails.shards: (none) -> 3", "topic", "set", "mails", "shards=3", "--replace")
	o.wants(cli.Done, "shards: 3\n", "topic", "get", "mails")
	o.wants(cli.Done, "paused: false -> true", "topic", "pause", "mails")
}
