package main

import (
	"fmt"
	"io"

	"github.com/duefleet/duefleet/internal/config"
)

// printLeftBinding says what a change of declare.queue leaves at the broker: scanners bind
// the new queue and unbind none, so that each task arrives in both.
func printLeftBinding(out io.Writer, before, after config.Document) {
	if before.Err != nil || after.Err != nil || !leavesBinding(before.Topic, after.Topic) {
		return
	}
	old := before.Topic
	fmt.Fprintf(out, "topic %s: queue %s stays bound to exchange %s for key %s, so that each task arrives in both queues; once scanners have applied this, unbind it: "+
		"rabbitmqadmin -V VHOST delete binding source=%s destination_type=queue destination=%s properties_key=%s\n",
		after.Name, old.Declare.Queue, old.Exchange, old.RoutingKey, old.Exchange, old.Declare.Queue, old.RoutingKey)
}

// leavesBinding reports whether what is published by the newer settings still reaches the
// queue that the older ones declared, and is meant for another. A fanout exchange knows no
// keys; of a topic exchange the same key is looked at alone.
func leavesBinding(before, after config.Topic) bool {
	if before.Declare == nil || after.Declare == nil || before.Exchange == "" {
		return false
	}
	sameKey := before.RoutingKey == after.RoutingKey || after.Declare.Type == "fanout"
	return before.Declare.Queue != after.Declare.Queue && before.Exchange == after.Exchange && sameKey
}
