package amqpmsg

import (
	"errors"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/task"
)

// TestRulesOfAMessage: Check names the field of what no intake stores.
func TestRulesOfAMessage(t *testing.T) {
	t.Parallel()
	headers := func(name string, value any) task.AMQP { return task.AMQP{Headers: map[string]any{name: value}} }
	properties := func(p Properties) task.AMQP { return task.AMQP{Properties: p} }
	long := strings.Repeat("x", 256)
	for want, a := range map[string]task.AMQP{
		"amqp.routing_key: must have at most 255 bytes; got 256 bytes":       {RoutingKey: long},
		"amqp.properties.type: must have at most 255 bytes; got 256 bytes":   properties(Properties{Type: long}),
		"amqp.properties.delivery_mode: must be 1 or 2; got 3":               properties(Properties{DeliveryMode: 3}),
		"amqp.properties.reply_to: must be a queue that others can reach":    properties(Properties{ReplyTo: directReplyTo}),
		"amqp.properties.expiration: must be text with a number of millisec": properties(Properties{Expiration: "1m"}),
		"amqp.headers.X-Duefleet-Due: must not begin with x-duefleet-":       headers("X-Duefleet-Due", int64(1)),
		"amqp.headers.x-duefleet-taken: must be an int64":                    headers(HeaderTaken, int32(1)),
		"amqp.headers.BCC: must be an array of routing keys":                 headers("BCC", "queue"),
		"amqp.headers.n: must be of one of the types that task.AMQP lists":   headers("n", 1),
		"amqp.headers.n.0: must be of one of the types":                      headers("n", []any{uint64(1)}),
		"amqp.headers.n: must have at most 8192 elements; got 8193":          headers("n", make([]any, 8193)),
		"amqp.headers.n: must have at most 129024 bytes; got 129025 bytes":   headers("n", make([]byte, 129025)),
		"amqp.headers: must take at most 129024 bytes together with the":     headers("n", make([]byte, 129020)),
		"headers must not nest deeper than 32; got more":                     headers("n", nested(32)),
	} {
		err := Check(&a)
		var rule *task.RuleError
		if !errors.As(err, &rule) || !strings.HasPrefix(rule.Field, "amqp.") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	m, _ := every()
	m.Headers[HeaderHops], m.Headers[HeaderTaken], m.Headers["CC"] = int64(1), int64(2), []any{"queue"}
	m.Properties.ReplyTo += "amq.rabbitmq.reply-to.of.a.channel"
	if err := Check(&task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}); err != nil {
		t.Error(err)
	}
}
