package config

import (
	"strings"

	"github.com/duefleet/duefleet/task"
)

// Intake is where AMQP clients publish messages that become tasks. A quorum queue with one
// active consumer keeps the order of the messages of one ID.
type Intake struct {
	// Exchange that clients publish to, other than the topic's own, up to 127 bytes; empty: no intake.
	Exchange string `yaml:"exchange" check:"intake name"`
	// Type of the exchange: topic, fanout or headers.
	Type string `yaml:"type" default:"topic" check:"intake type"`
	// Queue from which scanners take the messages, up to 127 bytes; duefleet.TOPIC.intake by default.
	//
	// Messages that break a rule go to the exchange <queue>.refused.
	Queue string `yaml:"queue" check:"intake name"`
	// Which part of a message is the task's ID: message_id, none or header:NAME.
	//
	// A message without an ID, and every message with none, is a task of its own. Only tasks
	// with an ID can be replaced, cancelled and moved.
	Key string `yaml:"key" default:"message_id" check:"intake key"`
	// True: messages with an ID may have a priority, although RabbitMQ 4.0 and later order by it.
	//
	// Give all messages of an ID the same priority then. Without it, such a broker's messages with an
	// ID and a priority are refused.
	Priorities bool `yaml:"priorities" default:"false"`
	// True: duefleet's own headers are added to these messages when they are due.
	Headers bool `yaml:"headers" default:"false"`
}

// maxIntakeName bounds the names of the intake, in bytes. Names with a suffix then stay
// within AMQP's 255.
const maxIntakeName = "127"

// The values of Intake.Key. The name of a header follows IntakeKeyHeader.
const (
	IntakeKeyMessageID = "message_id"
	IntakeKeyNone      = "none"
	IntakeKeyHeader    = "header:"
)

// ByHeader returns the name of the header with a task's ID; "" if the ID isn't in one.
func (in Intake) ByHeader() string {
	header, _ := strings.CutPrefix(in.Key, IntakeKeyHeader)
	if header == in.Key {
		return ""
	}
	return header
}

// intakeKey accepts the values of Intake.Key.
func intakeKey(value any) string {
	header, byHeader := strings.CutPrefix(value.(string), IntakeKeyHeader)
	switch {
	case !byHeader:
		if value == IntakeKeyMessageID || value == IntakeKeyNone {
			return ""
		}
		return "must be " + IntakeKeyMessageID + ", " + IntakeKeyNone + " or " + IntakeKeyHeader + "NAME; got " + show(value)
	case reserved(header):
		return "must not name a header that says what duefleet does: " + show(header)
	}
	return within("", "1", "128")(header)
}

// reserved reports whether a message with a header of that name says when it is due. The same holds for
// a misspelt name, with which a message is refused.
func reserved(header string) bool {
	plain := strings.ReplaceAll(strings.ToLower(header), "_", "-")
	return plain == "x-delay" || strings.HasPrefix(plain, task.ReservedHeaderPrefix)
}

// newIntake returns the section intake of an empty document {intake: {}}.
func newIntake(topic string) *Intake {
	in := &Intake{Queue: "duefleet." + topic + ".intake"}
	setDefaults(in)
	return in
}

// TakesIn reports whether the topic has an intake.
func (t Topic) TakesIn() bool { return t.Intake != nil && t.Intake.Exchange != "" }

// Refused returns the name of an exchange and of the queue bound to it. They keep the
// messages that no task can be made of.
func (in Intake) Refused() string { return in.Queue + ".refused" }

// Canary returns the name of an exchange that RabbitMQ deletes with the intake's exchange.
func (in Intake) Canary() string { return in.Exchange + ".canary" }

// intakeName accepts a name that the broker doesn't reserve.
func intakeName(value any) string {
	if problem := queueName(value); problem != "" && strings.HasPrefix(value.(string), "amq.") {
		return problem
	}
	return within("", "1", maxIntakeName)(value)
}

// receivesAll accepts the types of an exchange that can send every message to one queue.
func receivesAll(value any) string {
	if value == "direct" {
		return "must not be direct, which can't send every routing key to one queue; a topic exchange does: set topic. " +
			"Publishers name only the exchange, so its type doesn't matter to them"
	}
	return oneOf("topic", "fanout", "headers")(value)
}

// checkIntake refuses names that would send messages round in a circle, or mix them with
// others.
func checkIntake(t Topic, s settings, errs *errorList) {
	in := *t.Intake
	if in.Queue == "" {
		errs.about(s, "intake.queue", "must have a name where intake.exchange is given")
		return
	}
	exchanges := map[string]string{"exchange": t.Exchange}
	queues := map[string]string{}
	if t.Declare != nil {
		exchanges["declare.dead_letter"], queues["declare.dead_letter"] = t.Declare.DeadLetter, t.Declare.DeadLetter
		queues["declare.queue"] = t.Declare.Queue
	}
	for _, key := range []string{"exchange", "declare.dead_letter"} {
		switch name := exchanges[key]; {
		case name == in.Exchange:
			errs.about(s, "intake.exchange", "must be another exchange than %s: a task that is due would come back "+
				"as a new one; got %s", key, show(name))
		case name == in.Refused():
			errs.about(s, "intake.queue", "must not make %s the exchange for refused messages, which is its name "+
				"and .refused; got %s", key, show(in.Queue))
		}
	}
	for _, key := range []string{"declare.queue", "declare.dead_letter"} {
		if name := queues[key]; name != "" && (name == in.Queue || name == in.Refused()) {
			errs.about(s, "intake.queue", "must be another queue than %s, also with .refused at its end; got %s", key,
				show(in.Queue))
		}
	}
	if in.Exchange == in.Refused() {
		errs.about(s, "intake.exchange", "must not be the exchange for refused messages, %s", show(in.Exchange))
	}
}
