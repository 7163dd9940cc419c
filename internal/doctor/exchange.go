package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
)

// examineDeclared checks that an exchange that is there is as scanners declare it, and
// reports whether it is. RabbitMQ refuses another declaration, and changes nothing.
func (p Target) examineDeclared(ctx context.Context, r *report, b *broker, name string, t config.Topic) (fits bool) {
	check := "topic " + name + " exchange"
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(t.Exchange, t.Declare.Type, true, false, false, false, nil)
	})
	remake := fmt.Sprintf("rabbitmqadmin -V %s delete exchange name=%s, so that a scanner makes it again", b.uri.Vhost,
		t.Exchange)
	switch d, differs := differenceIn(err); {
	case err == nil:
		r.ok(check, "exchange %s is there, of type %s", t.Exchange, t.Declare.Type)
		return true
	case differs && d.name == "type":
		kind := strings.Trim(d.has, "'")
		r.fail(check, remake+p.otherType(name, kind), "exchange %s is of type %s, and scanners declare it as %s: RabbitMQ "+
			"refuses that with 406 when they connect again", t.Exchange, d.has, t.Declare.Type)
	case differs:
		r.fail(check, remake, "exchange %s is there with another %s than scanners declare: %v", t.Exchange, d.name, err)
	case amqpconn.Refused(err, amqp.AccessRefused):
		r.ok(check, "exchange %s is there", t.Exchange)
		r.unchecked("types of exchanges", "user %s may not declare them", b.uri.Username)
		return true
	default:
		b.refuse(ctx, r, check, "exchange "+t.Exchange, err)
	}
	return false
}

// otherType returns the advice to declare an exchange with the type that it has; "" if
// scanners can't declare that type.
func (p Target) otherType(name, kind string) string {
	switch {
	case !slices.Contains([]string{"direct", "fanout", "topic", "headers"}, kind):
		return ""
	case p.Consul != nil:
		return "; or " + p.command("topic set "+name+" declare.type="+kind)
	}
	return "; or set declare.type to " + kind + " in " + p.Path
}
