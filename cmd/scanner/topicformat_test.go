package main

import (
	"math"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
)

// TestAnOldScannerIsNotToRefuseDeadLetters: it would go on by the document before, and
// declare the queue in another way than the new ones. A pause with an end it knows.
func TestAnOldScannerIsNotToRefuseDeadLetters(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	says := o.member("old")
	says.Store(&balance.Member{Applied: math.MaxInt64, Format: 1})
	o.heard("old", func(m balance.Member) bool { return m.Format == 1 })
	file := writeFile(t, "topics.yaml", "orders: {declare: {queue: q, dead_letter: dead}}\n")
	const refused = "which would refuse declare.dead_letter: old; nothing was written"
	settings := []string{"orders", "declare.queue=q", "declare.dead_letter=dead", "--no-wait"}
	o.wants(cli.Done, "written", "topic", "set", "orders", "declare.queue=q", "--no-wait")
	o.wants(cli.Failed, refused, append([]string{"topic", "set"}, settings...)...)
	settings[0] = "mails"
	o.wants(cli.Failed, refused, append([]string{"topic", "create"}, settings...)...)
	settings[0] = "orders"
	o.wants(cli.Failed, refused, "topic", "apply", "-f", file, "--yes", "--no-wait")
	if doc := o.document(); strings.Contains(doc, "dead") {
		t.Errorf("written: %q", doc)
	}
	o.wants(cli.Done, "written", "topic", "pause", "orders", "--until", "2h", "--no-wait")
	says.Store(&balance.Member{Applied: math.MaxInt64, Format: config.Format()})
	o.heard("old", func(m balance.Member) bool { return m.Format == config.Format() })
	o.wants(cli.Done, "written", append([]string{"topic", "set"}, settings...)...)
	if doc := o.document(); !strings.Contains(doc, "dead_letter: dead") {
		t.Errorf("written: %q", doc)
	}
}
