package main

import (
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
)

// TestSetTellsOfTheBindingThatItLeaves: where tasks would arrive in the old queue, too, and
// nowhere else.
func TestSetTellsOfTheBindingThatItLeaves(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "declare.queue=orders.due", "--no-wait")
	const left = "topic orders: queue orders.due stays bound to exchange orders for key orders, so that each task arrives in both queues"
	const unbind = "rabbitmqadmin -V VHOST delete binding source=orders destination_type=queue destination=orders.due properties_key=orders\n"
	for assignments, told := range map[string]bool{
		"declare.queue=new.due":                             true,
		"declare.queue=new.due declare.type=fanout":         true,
		"declare.queue=new.due routing_key=k":               false,
		"declare.queue=new.due exchange=other":              false,
		"declare.queue_type=classic":                        false,
		"declare=":                                          false,
		"declare.queue=new.due exchange=orders rate=5":      true,
		"declare.queue=orders.due rate=7":                   false,
		"routing_key=k declare.type=fanout declare.queue=q": true,
	} {
		code, text := o.call(append([]string{"topic", "set", "orders", "--dry-run"}, strings.Fields(assignments)...)...)
		if code != cli.Done || strings.Contains(text, left) != told || strings.Contains(text, unbind) != told {
			t.Errorf("%s: code %d, %s", assignments, code, text)
		}
	}
}
