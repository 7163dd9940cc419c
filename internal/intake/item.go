package intake

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/amqptypes"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// HeaderVerb says what a message asks for. A message without it is scheduled and gets no
// answer.
const HeaderVerb = task.ReservedHeaderPrefix + "verb"

// The verbs.
const (
	Schedule = "schedule"
	IfAbsent = "if-absent"
	Cancel   = "cancel"
	Move     = "move"
)

// The codes of answers.
const (
	codeOK       = "ok"
	codeNotFound = "not_found"
	codeExists   = "exists"
	codeRefused  = "refused"
)

// The classes of refusals, for metrics.
const (
	refusedID      = "id"
	refusedWhen    = "when"
	refusedVerb    = "verb"
	refusedPayload = "payload"
	refusedHeaders = "headers"
	refusedRoute   = "route"
	// refusedLoop is for a message that goes round without end.
	refusedLoop = "loop"
	// refusedUnreadable is for a message whose headers amqpframe replaced.
	refusedUnreadable = "unreadable"
)

// refusal says which rule a message breaks. A repeat would break it again.
type refusal struct {
	class string
	why   error
}

// item is a message that arrived, with its request and its outcome.
type item struct {
	delivery *amqp.Delivery
	bytes    int
	verb     string
	asked    bool // it has HeaderVerb
	id       string
	due      due
	entry    shard.Entry // of a task to store

	refusal *refusal
	code    string // "" until it is carried out
	dueAt   int64  // of the answer, in Unix ms; 0: none
	done    bool   // only the ack is left
}

const (
	// itemBytes are the bytes that a message takes besides its payload and headers.
	itemBytes = 1 << 10
	// copies is how often its payload is in memory: as it came and as it is stored.
	copies = 2
)

// rules are the rules for messages that depend on settings.
type rules struct {
	maxPayload int
	// loops is the routing key that would lead a due task back into the intake; "": none.
	loops string
}

// read checks a message that is taken at now, and finds out what it asks for.
func (r rules) read(d *amqp.Delivery, now time.Time) *item {
	it := &item{delivery: d, bytes: itemBytes + copies*(len(d.Body)+weight(d.Headers)), verb: Schedule}
	it.refusal = it.understand(r, amqptypes.Message(d), now)
	return it
}

// understand sets what the message asks for, or returns why it is refused.
func (it *item) understand(r rules, m amqpmsg.Message, now time.Time) *refusal {
	if err := amqpframe.Unreadable(m.Headers); err != nil {
		return &refusal{refusedUnreadable, err}
	}
	if v, there := m.Headers[HeaderVerb]; there {
		it.asked = true
		verb, _ := text(v)
		switch verb {
		case Schedule, IfAbsent, Cancel, Move:
			it.verb = verb
		default:
			return &refusal{refusedVerb, fmt.Errorf("header %s: must be %s, %s, %s or %s", HeaderVerb, Schedule, IfAbsent,
				Cancel, Move)}
		}
	}
	if err := checkNames(m.Headers); err != nil {
		return &refusal{refusedHeaders, err}
	}
	if why := it.name(m.Properties.MessageID); why != nil {
		return &refusal{refusedID, why}
	}
	if it.verb == Cancel {
		return nil
	}
	var err error
	if it.due, err = dueOf(m.Headers); err != nil {
		return &refusal{refusedWhen, err}
	}
	if it.verb == Move {
		if !it.due.given {
			return &refusal{refusedWhen, fmt.Errorf("a move needs one of the headers %s, %s and %s", HeaderDelay, HeaderDue,
				HeaderIn)}
		}
		return nil
	}
	return it.pack(r, m, now)
}

// name takes the ID from message_id, or makes one for a message to schedule without it.
func (it *item) name(messageID string) error {
	switch it.id = messageID; {
	case messageID != "":
		return task.CheckID(messageID)
	case it.verb != Schedule:
		return errors.New("message_id: must be given: it names the task")
	}
	it.id = rand.Text()
	return nil
}

// pack makes the record's body of a message to store.
func (it *item) pack(r rules, m amqpmsg.Message, now time.Time) *refusal {
	if err := task.CheckPayload(m.Body, r.maxPayload); err != nil {
		return &refusal{refusedPayload, err}
	}
	if r.loops != "" && m.RoutingKey == r.loops {
		return &refusal{refusedRoute, fmt.Errorf("routing key: must not be %s: AMQP's default exchange would bring the "+
			"message back to the intake", r.loops)}
	}
	hop := hopOf(m.Headers, now)
	if err := hop.check(); err != nil {
		return &refusal{refusedLoop, err}
	}
	it.due.deliveredHeaders(m.Headers)
	it.entry = shard.Entry{ID: it.id, When: it.due.when, IfAbsent: it.verb == IfAbsent}
	if it.entry.IfAbsent { // before the hop, which differs on redelivery
		body, err := amqpmsg.Encode(m)
		if err != nil {
			return &refusal{refusedHeaders, err}
		}
		it.entry.Op = opOf(it.id, it.due.when, body)
	}
	hop.mark(m.Headers, it.due.when.Time(now))
	body, err := amqpmsg.Encode(m)
	if err != nil {
		return &refusal{refusedHeaders, err}
	}
	it.entry.Body = body
	return nil
}

// class is equal for messages that one call to Redis can take. Refused messages need none.
func (it *item) class() string {
	if it.refusal != nil {
		return ""
	}
	return cmp.Or(map[string]string{IfAbsent: Schedule}[it.verb], it.verb)
}

// weight estimates the bytes of headers.
func weight(headers amqp.Table) (bytes int) {
	const each = 16
	for key, v := range headers {
		bytes += each + len(key)
		switch v := v.(type) {
		case string:
			bytes += len(v)
		case []byte:
			bytes += len(v)
		case amqp.Table:
			bytes += weight(v)
		case []any:
			bytes += each * len(v)
		}
	}
	return bytes
}

// batch is a run of messages that one call to Redis carries out.
type batch []*item

const (
	// batchItems and batchBytes bound a batch.
	batchItems = 500
	batchBytes = 8 << 20
)

// cut returns the first batch of the messages that arrived, and the rest. A batch ends
// before an ID that it has already, and before another verb. So the messages of one ID
// are carried out in their order.
func cut(arrived []*item) (first batch, rest []*item) {
	class, bytes := "", 0
	ids := make(map[string]struct{}, min(len(arrived), batchItems))
	for n, it := range arrived {
		_, twice := ids[it.id]
		mine := it.class()
		full := n == batchItems || n > 0 && bytes+it.bytes > batchBytes
		if full || mine != "" && (twice || class != "" && mine != class) {
			return arrived[:n:n], arrived[n:]
		}
		if mine != "" {
			class, ids[it.id] = mine, struct{}{}
		}
		bytes += it.bytes
	}
	return arrived, nil
}

// undone returns the messages that aren't carried out.
func (b batch) undone() (rest batch) {
	for _, it := range b {
		if !it.done {
			rest = append(rest, it)
		}
	}
	return rest
}

// run returns how many messages are done without a gap.
func (b batch) run() (n int) {
	for n < len(b) && b[n].done {
		n++
	}
	return n
}
