package main

import (
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorFindsTheIntakeOfARemovedTopic: its history is still there, and the advice is a
// command that needs no topic.
func TestDoctorFindsTheIntakeOfARemovedTopic(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Consul(t)
	url := servertest.RabbitMQ(t)
	o := newOperator(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n", addr, prefix, url))
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
