package main

import (
	"slices"
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
