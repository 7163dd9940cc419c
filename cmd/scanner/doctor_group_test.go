package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

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

// TestDoctorFindsTheIntakeOfARemovedTopic: its history is still there, and the advice is a
// command that needs no topic.
func TestDoctorFindsTheIntakeOfARemovedTopic(t *testing.T) {
	t.Parallel()
	o, url := newBrokerOperator(t)
	ch := servertest.Channel(t, url)
	inletsOf(t, ch, "x", "topic", "q")
	o.wants(cli.Done, "written", "topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait")
	o.finds("while the topic is there", "topic orders old intake", "")
	o.wants(cli.Done, "", "topic", "rm", "orders", "--yes")
	o.finds("after the removal", "topic orders old intake", "warn: queue q of an earlier intake holds 0 messages, and "+
		"nobody consumes from it; AMQP can't tell whether it is still bound to exchange x: if it is, RabbitMQ confirms "+
		"what is published there, and no scanner takes it -> let publishers to x use another exchange; then "+
		"rabbitmqadmin -V "+
		vhostOf(t, url)+" delete binding source=x destination_type=queue destination=q properties_key='#'; then delete q "+
		"when it is empty")
	o.wants(cli.Done, "written", "topic", "create", "bills", "intake.exchange=x", "intake.queue=q", "--no-wait")
	o.finds("when another topic has the queue", "topic orders old intake", "")
	o.wants(cli.Done, "", "topic", "rm", "bills", "--yes")
	if _, err := ch.QueueDelete("q", false, false, false); err != nil {
		t.Fatal(err)
	}
	o.finds("when the queue is gone", "topic orders old intake", "")
}
