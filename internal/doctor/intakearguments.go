package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
)

// The arguments that a queue made by hand needs, too.
const (
	argSingleActive  = "x-single-active-consumer"
	argDeliveryLimit = "x-delivery-limit"
	argDeadLetter    = "x-dead-letter-exchange"
)

// intakeTable returns the arguments with which a scanner declares an intake's queue.
func intakeTable(in config.Intake) amqp.Table {
	return amqp.Table{amqp.QueueTypeArg: "quorum", argSingleActive: true, argDeliveryLimit: int32(1<<31 - 1),
		argDeadLetter: in.Refused(), "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
}

// intakeArguments returns them as JSON.
func intakeArguments(in config.Intake) string {
	text, _ := json.Marshal(intakeTable(in)) // texts, a number and a bool
	return string(text)
}

// examineIntakeArguments checks the arguments of a queue that is there, and says what AMQP
// can't tell of a binding that somebody makes by hand. Scanners make their own one again
// and again.
func (b *broker) examineIntakeArguments(ctx context.Context, r *report, name string, t config.Topic) {
	check, in := "topic "+name+" intake arguments", t.Intake
	all, err := b.differences(ctx, in.Queue, intakeTable(*in))
	switch {
	case amqpconn.Refused(err, amqp.AccessRefused):
		r.unchecked(check, "user %s may not declare queue %s, so its arguments aren't known", b.uri.Username, in.Queue)
	case err != nil:
		b.refuse(ctx, r, check, "the arguments of queue "+in.Queue, err)
	case t.Declare != nil && len(all) > 0:
		r.fail(check, "delete queue "+in.Queue+" once it is empty, so that a scanner makes it again, or set intake.queue to "+
			"another name", "queue %s differs from what scanners declare, and they can't take messages from it: %s", in.Queue,
			strings.Join(texts(all), ", "))
	case t.Declare != nil:
		r.ok(check, "queue %s has the arguments with which scanners declare it", in.Queue)
	default:
		b.examineArgumentsByHand(r, check, *in, all)
	}
	if t.Declare == nil {
		r.unchecked("topic "+name+" intake binding", "AMQP can't tell whether queue %s is bound to exchange %s: if it "+
			"isn't, RabbitMQ drops what is published there without mandatory", in.Queue, in.Exchange)
	}
}

// examineArgumentsByHand reports the differences that matter.
func (b *broker) examineArgumentsByHand(r *report, check string, in config.Intake, all []difference) {
	classic := slices.ContainsFunc(all, func(d difference) bool { return d.name == amqp.QueueTypeArg })
	var lacks []string
	report := r.warn
	for _, d := range all {
		switch {
		case d.name == argSingleActive:
			report = r.fail
			lacks = append(lacks, d.String()+": messages of one ID may overtake each other")
		case d.name == argDeliveryLimit && !classic: // others have no limit
			lacks = append(lacks, d.String()+": RabbitMQ 4.0 and later drop a message after as many deliveries, or after 20")
		case d.name == argDeadLetter && d.has == "none":
			lacks = append(lacks, d.String()+": a message whose expiration ends there is lost")
		}
	}
	if len(lacks) == 0 {
		r.ok(check, "queue %s has the arguments that an intake needs", in.Queue)
		return
	}
	report(check, "declare it again, once it is empty: "+b.declare("queue", fmt.Sprintf(`name=%s arguments='%s'`, in.Queue,
		intakeArguments(in))), "queue %s lacks what an intake needs: %s", in.Queue, strings.Join(lacks, "; "))
}

// mostArguments is more than RabbitMQ knows of.
const mostArguments = 30

// differences returns in what a queue differs from a declaration, by name. RabbitMQ refuses
// a declaration with the first difference. Each further one takes over the value that the
// queue has. The queue must be there: a declaration then makes nothing.
func (b *broker) differences(ctx context.Context, queue string, arguments amqp.Table) (all []difference, err error) {
	arguments = maps.Clone(arguments)
	for len(all) < mostArguments {
		err = b.ask(ctx, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclare(queue, true, false, false, false, arguments)
			return err
		})
		d, differs := differenceIn(err)
		if !differs {
			break
		}
		all, err = append(all, d), nil
		value, known := d.value(arguments[d.name])
		if !known {
			break
		}
		if value == nil {
			delete(arguments, d.name)
		} else {
			arguments[d.name] = value
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return strings.Compare(a.name, b.name) })
	return all, err
}

// hasValue has the type of the value if the declaration had another one.
var hasValue = regexp.MustCompile(`^(?:the value )?'(.*?)'(?: of type '(\w+)')?$`)

// value returns the argument's value, where declared was refused. It is nil if the queue
// hasn't got the argument. known is false for a property, such as durable, and for types
// that no argument has.
func (d difference) value(declared any) (value any, known bool) {
	if d.has == "none" {
		return nil, true
	}
	m := hasValue.FindStringSubmatch(d.has)
	if m == nil {
		return nil, false
	}
	_, isText := declared.(string)
	_, isBool := declared.(bool)
	switch {
	case m[2] == "" && declared == nil:
		return nil, false
	case m[2] == "longstr", m[2] == "" && isText:
		return m[1], true
	case m[2] == "bool", m[2] == "" && isBool:
		return m[1] == "true", true
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n, err == nil
}

func (d difference) String() string { return d.name + " is " + d.has }

func texts(all []difference) (some []string) {
	for _, d := range all {
		some = append(some, d.String())
	}
	return some
}
