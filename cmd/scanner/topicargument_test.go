package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
)

// TestTheTopicIsAnArgumentOrAFlag: verbs about a topic's tasks take the topic as argument
// or flag, with the same result. Two topics are an error.
func TestTheTopicIsAnArgumentOrAFlag(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.parkAs("orders", "o-1", "handler failed")
	o.parkAs("mails", "m-1", "handler failed")
	for _, c := range []struct {
		verb, more []string
		want       string
	}{
		{[]string{"status"}, []string{"-o", "json"}, `"topic": "orders"`},
		{[]string{"tasks", "ls"}, nil, "o-1"},
		{[]string{"tasks", "find"}, []string{"--state", "parked"}, "o-1"},
		{[]string{"parked", "ls"}, nil, "o-1"},
		{[]string{"parked", "replay"}, []string{"--reason", "nothing", "--yes"}, "replayed 0"},
		{[]string{"parked", "purge"}, []string{"--reason", "nothing", "--yes"}, "purged 0"},
	} {
		for _, topic := range [][]string{{"orders"}, {"--topic", "orders"}, {"--topic", "orders", "orders"}} {
			o.wants(cli.Done, c.want, slices.Concat(c.verb, c.more, topic)...)
		}
		o.wants(cli.Usage, `unexpected argument "mails"; a value follows its flag, and the topic is "orders" by --topic; see scanner `,
			slices.Concat(c.verb, []string{"mails", "--topic", "orders"}, c.more)...)
		o.wants(cli.Usage, `unexpected argument "mails"; a value`, slices.Concat(c.verb, []string{"orders", "mails"},
			c.more)...)
		o.wants(cli.Usage, "the topic is empty", slices.Concat(c.verb, []string{""}, c.more)...)
	}
	if _, text := o.call("parked", "ls", "mails", "-o", "ndjson"); len(text) == 0 {
		t.Error("nothing is parked in mails after replays and purges of orders")
	}
}

// TestANewTopicMayBeATypo: set refuses a new topic whose name is similar to another
// topic's, and names that topic. Create accepts every new name, but no existing topic.
func TestANewTopicMayBeATypo(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "topic orders written", "topic", "create", "orders", "rate=5", "--no-wait")
	o.wants(cli.Failed, "topic orders has a document already; `scanner topic set orders key=value...` changes it", "topic",
		"create", "orders", "rate=6", "--no-wait")
	o.wants(cli.Done, "rate: 5\n", "topic", "get", "orders")
	for _, more := range []string{"--no-wait", "--dry-run"} {
		o.wants(cli.Failed, "there is no topic order; did you mean orders? `scanner topic create order key=value...` "+
			"makes a new one; nothing was written", "topic", "set", "order", "rate=5", more)
	}
	o.wants(cli.NotFound, "has no document", "topic", "get", "order")
	for _, args := range [][]string{{"create", "order"}, {"set", "order", "rate=6"}, {"set", "mails", "rate=6"},
		{"create", "oders"}, {"create", "defaults"}} {
		code, text := o.call(append([]string{"topic"}, append(args, "--no-wait")...)...)
		if code != cli.Done || strings.Contains(text, "did you mean") {
			t.Errorf("%q: code %d, %s", args, code, text)
		}
	}
	o.wants(cli.Done, "{}\n", "topic", "get", "defaults")
	o.wants(cli.Done, "a dry run, nothing was written", "topic", "create", "later", "--dry-run")
	o.wants(cli.NotFound, "has no document", "topic", "get", "later")
	o.wants(cli.Usage, "name a topic", "topic", "create")
}
