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
	Schedule  = "schedule"
	IfAbsent  = "if-absent"
	IfPresent = "if-present"
	Cancel    = "cancel"
	Move      = "move"
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
	// refusedPriority is for a message that would overtake others with its ID, or be overtaken.
	refusedPriority = "priority"
	// refusedOperator is for a message that breaks no rule; see First.
	refusedOperator = "operator"
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
	unnamed  bool // the ID is a random one
	due      due
	rule     *task.Recurrence // of a recurring task; else nil
	group    string           // of the task; "": none
	entry    shard.Entry      // of a task to store

	refusal *refusal
	code    string                     // "" until it is carried out.
	maybe   bool                       // code is of a repeat; an earlier copy may have taken effect.
	short   bool                       // the last answer: too few replicas have it.
	unknown bool                       // it may be carried out, and has no code.
	stored  int64                      // due time that the master has, in Unix ms; 0: none.
	removed bool                       // a cancel that isn't complete removed the task.
	dueAt   int64                      // of the answer, in Unix ms; 0: none.
	answer  *amqp.DeferredConfirmation // nil until an answer is published.
	kept    bool                       // RabbitMQ has it in a queue for refused messages.
	done    bool                       // only the ack is left.
	rejects bool                       // its body was too large to read, so it is rejected, not acked.
}

const (
	// itemBytes are the bytes that a message takes besides its payload and headers.
	itemBytes = 1 << 10
	// copies is how often its payload is in memory: as it came and as it is stored.
	copies = 2
	// decoded is how many bytes a byte of its properties takes at most: an array's empty
	// value has one byte, and takes an any.
	decoded = 16
)

// rules are the rules for messages that depend on settings.
type rules struct {
	maxPayload int
	// loops is the routing key that would lead a due task back into the intake; "": none.
	loops string
	key   Key
	// ordered: the queue delivers by priority, so a message with an ID must have none.
	ordered bool
}

// read checks a message that is taken at now, and finds out what it asks for.
func (r rules) read(d *amqp.Delivery, now time.Time) *item {
	it := &item{delivery: d, verb: Schedule}
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
		case Schedule, IfAbsent, IfPresent, Cancel, Move:
			it.verb = verb
		default:
			return &refusal{refusedVerb, fmt.Errorf("header %s: must be %s, %s, %s, %s or %s", HeaderVerb, Schedule, IfAbsent,
				IfPresent, Cancel, Move)}
		}
	}
	if err := checkNames(m.Headers); err != nil {
		return &refusal{refusedHeaders, err}
	}
	if why := it.name(r.key, m); why != nil {
		return &refusal{refusedID, why}
	}
	if r.ordered && !it.unnamed {
		if err := checkOrder(m); err != nil {
			return &refusal{refusedPriority, err}
		}
	}
	if it.verb == Cancel {
		return nil
	}
	var err error
	if it.due, err = dueOf(m.Headers); err != nil {
		return &refusal{refusedWhen, err}
	}
	if it.rule, err = ruleOf(m.Headers); err != nil {
		return &refusal{refusedWhen, err}
	}
	if it.verb == Move {
		if it.rule != nil {
			return &refusal{refusedWhen, errors.New("a move takes no rule: it moves one run")}
		}
		if !it.due.given {
			return &refusal{refusedWhen, fmt.Errorf("a move needs one of the headers %s, %s and %s", HeaderDelay, HeaderDue,
				HeaderIn)}
		}
		return nil
	}
	if v, there := m.Headers[task.HeaderGroup]; there {
		group, good := idOf(v)
		if !good || group == "" || task.CheckGroup(group) != nil {
			return &refusal{refusedHeaders, fmt.Errorf("header %s: must be an integer, or 1 to %d bytes of valid UTF-8",
				task.HeaderGroup, task.MaxGroup)}
		}
		it.group = group
	}
	if it.rule != nil {
		if err := it.checkRecurringID(); err != nil {
			return &refusal{refusedID, err}
		}
	}
	return it.pack(r, m, now)
}

// Key says which part of a message is the task's ID: by default the property message_id.
type Key struct {
	// Header is the name of a header with the ID, "" for none.
	Header string
	// None: no message has an ID.
	None bool
}

// name takes the ID from the message, or makes one for a message to schedule without it.
func (it *item) name(key Key, m amqpmsg.Message) error {
	switch {
	case key.Header != "":
		if v, there := m.Headers[key.Header]; there {
			id, good := idOf(v)
			if it.id = id; !good {
				return fmt.Errorf("header %s: must be text or an integer: it is the task's ID", key.Header)
			}
		}
	case !key.None:
		it.id = m.Properties.MessageID
	}
	switch {
	case it.id != "":
		return task.CheckID(it.id)
	case it.verb == Schedule:
		it.id, it.unnamed = rand.Text(), true
		return nil
	case key.Header != "":
		return fmt.Errorf("header %s: must be given: it names the task", key.Header)
	case key.None:
		return fmt.Errorf("header %s: must be %s or be left out: the topic's intake.key is none, so no message names a task",
			HeaderVerb, Schedule)
	}
	return errors.New("message_id: must be given: it names the task")
}

// checkRecurringID checks the ID of a recurring task. A random one won't do: nobody could end the
// task, and after a crash it would recur twice.
func (it *item) checkRecurringID() error {
	switch {
	case it.unnamed:
		return errors.New("a recurring task needs an ID, by which it can be cancelled")
	case len(it.id) > task.MaxRecurringID:
		return &task.RuleError{Field: "id", Rule: fmt.Sprintf("must be at most %d bytes for a recurring task",
			task.MaxRecurringID), Got: fmt.Sprintf("%d bytes", len(it.id))}
	}
	return nil
}

// idOf returns the text of a header, or the digits of an integer.
func idOf(value any) (id string, ok bool) {
	switch v := value.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32, uint64, int:
		return fmt.Sprint(v), true
	}
	return text(value)
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
	if err := cmp.Or(restoreExpiration(&m), setPriority(&m)); err != nil {
		return &refusal{refusedHeaders, err}
	}
	it.due.deliveredHeaders(m.Headers)
	it.entry = shard.Entry{ID: it.id, When: it.due.when, IfAbsent: it.verb == IfAbsent,
		IfPresent: it.verb == IfPresent}
	if it.rule != nil && !it.due.given {
		it.entry.When = task.When{} // see begin
	}
	if it.entry.IfAbsent || it.entry.IfPresent { // before the hop, which differs on redelivery
		body, err := it.encode(m)
		if err != nil {
			return &refusal{refusedHeaders, err}
		}
		it.entry.Op = opOf(it.id, it.entry.When, body)
	}
	if it.rule == nil { // a run that comes back has no rule, and is marked then
		hop.mark(m.Headers, it.due.when.Time(now))
	}
	body, err := it.encode(m)
	if err != nil {
		return &refusal{refusedHeaders, err}
	}
	it.entry.Body = body
	return nil
}

// encode returns the record's body of a message, with the rule of a recurring task.
func (it *item) encode(m amqpmsg.Message) ([]byte, error) {
	return shard.Encode(&task.Task{Payload: m.Body, Group: it.group, Recurrence: it.rule,
		AMQP: &task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}})
}

// batch is a run of messages that are carried out together. Those that aren't refused have
// different IDs, so their order doesn't matter.
type batch []*item

const (
	// batchItems and batchBytes bound a batch.
	batchItems = 500
	batchBytes = 8 << 20
)

// cut returns the first batch of the messages that arrived, and the rest. A batch ends
// before an ID that it has already. So the messages of one ID are carried out in their
// order.
func cut(arrived []*item) (first batch, rest []*item) {
	bytes := 0
	ids := make(map[string]struct{}, min(len(arrived), batchItems))
	for n, it := range arrived {
		_, twice := ids[it.id]
		full := n == batchItems || n > 0 && bytes+it.bytes > batchBytes
		if full || it.refusal == nil && twice {
			return arrived[:n:n], arrived[n:]
		}
		if it.refusal == nil {
			ids[it.id] = struct{}{}
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

// short reports whether the master of Redis has all messages, and only replicas are missing.
// Another scanner has the same master.
func (b batch) short() bool {
	for _, it := range b {
		if !it.short {
			return false
		}
	}
	return true
}

// multiplies reports whether a message without an ID may be stored. Another scanner would store it
// once more, with an ID of its own.
func (b batch) multiplies() bool {
	return len(b.only(func(it *item) bool { return it.unnamed && it.unknown })) > 0
}

// run returns how many messages are done without a gap.
func (b batch) run() (n int) {
	for n < len(b) && b[n].done {
		n++
	}
	return n
}
