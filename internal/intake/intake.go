// Package intake carries out what AMQP clients publish to a topic's intake exchange. A
// message schedules a task, cancels one or moves one. It is acked when Redis has answered.
// One consumer at a time is active for a topic, so the messages of one ID keep their order.
//
// Nothing is lost: while Redis is full or away, messages stay in the queue. A message that
// breaks a rule goes to an exchange for refused messages, with the reason.
package intake

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Broker is a connection to RabbitMQ that its owner keeps up.
type Broker interface {
	// Channel opens a channel, which prepare makes ready, or says why it can't.
	Channel(ctx context.Context, prepare func(*amqp.Channel) error) (*amqp.Channel, error)
	// State reports whether the connection is open and whether RabbitMQ blocks it.
	State() (connected, blocked bool, reason string)
	// Changed returns a channel that is closed when that changes.
	Changed() <-chan struct{}
	// FrameMax returns the most bytes that RabbitMQ takes in a frame; 0 is no limit.
	FrameMax() int
}

// Inbound is a Broker to receive from.
type Inbound interface {
	Broker
	// Watch lets admit decide, for a new consumer tag, which messages come with their bodies and
	// properties and which wait, until the caller calls forget. While one waits, nothing is received.
	Watch(consumer string, admit amqpframe.Admit) (forget func())
	// Version returns the version of RabbitMQ, as in 4.1.2; "" if it isn't known.
	Version() string
}

// Settings say where messages come from.
type Settings struct {
	// Queue has the messages, and Refused is the exchange for those that break a rule.
	Queue, Refused string
	// Target is the exchange that due tasks go to.
	Target string
	// Key says which part of a message is the task's ID.
	Key Key
	// Priorities lets messages with an ID have priorities that change their order in Queue.
	Priorities bool
	// DeadLetters: Queue sends rejected messages to Refused. Then messages that are too large to
	// read are rejected.
	DeadLetters bool
	// Prepare declares or checks the exchanges and queues on a new channel.
	Prepare func(*amqp.Channel) error
	// Bind binds Queue to the intake's exchange again, and the queue for refused messages to
	// Refused; nil if others make the bindings.
	Bind func(*amqp.Channel) error
}

// Config configures the intake of a topic. All fields are required, except Advice.
type Config struct {
	Topic *shard.Topic
	Tasks *router.Router
	// MaxPayload is the largest payload of a task, in bytes.
	MaxPayload int
	// In is the intake's own connection to receive on, which stands still while there is no room.
	// Nothing is published on it, so that an alarm of RabbitMQ doesn't hold up acks. Out is for answers
	// and refused messages.
	In  Inbound
	Out Broker
	// Room returns how many bytes the messages in memory may take, and Hold counts them;
	// a number below 0 gives them back. A message that is larger is taken alone, and Large
	// bounds these for all topics together.
	Room    func() int
	Hold    func(bytes int)
	Large   *Large
	Metrics *Metrics
	// Count counts an error after which the intake goes on.
	Count func(operation string)
	Log   *slog.Logger
	// Advice returns what to do about an error of Redis, to be appended to its text.
	Advice func(text string) string

	pace pace
}

// pace holds what users can't configure. Tests shorten it.
type pace struct {
	// handOver is for how long Redis may fail before the channel is closed, so that
	// another scanner becomes the active consumer.
	handOver time.Duration
	// unknown is the same while a message without an ID may be stored.
	unknown time.Duration
	// answerFor is how long a batch may wait for a connection to send its answers.
	answerFor time.Duration
	// bind is the longest time until the binding is made again.
	bind time.Duration
	// quiet is how long no message may come before an intake whose messages failed is well again.
	quiet time.Duration
	// unmade is for how long the topic may be unknown to Redis before that is trouble.
	unmade time.Duration
	// look is how often a session without messages reads the latest term.
	look time.Duration
	// stored is called between Redis's reply and the ack; tests end the process there.
	stored func()
	// arrived is called for each message that waits to be carried out.
	arrived func()
}

const (
	defaultHandOver  = 30 * time.Second
	defaultUnknown   = 2 * time.Minute
	defaultAnswerFor = 5 * time.Second
	defaultBind      = 10 * time.Second
	defaultQuiet     = time.Minute
	defaultUnmade    = 10 * time.Second
	defaultLook      = 10 * time.Second
	// stopGrace is how long a call to Redis may take after the intake was stopped.
	stopGrace = 2 * time.Second
	// pauseMin and pauseMax are the limits of the pause between two tries.
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Intake takes messages for one topic.
type Intake struct {
	cfg     Config
	outbox  outbox
	logs    logs
	trouble atomic.Pointer[string] // why it takes nothing; nil if it does
	told    atomic.Bool            // the log says that it stands still
	// failing is why messages failed; nil once a batch was carried out whole since then.
	failing *string
}

// logs are the kinds of log lines that may occur once a message.
type logs struct{ refused, retried, unanswered, unbound *ratelog.Logger }

// New returns the intake of a topic and starts nothing.
func New(cfg Config) *Intake {
	if cfg.Advice == nil {
		cfg.Advice = func(string) string { return "" }
	}
	cfg.pace.handOver = cmp.Or(cfg.pace.handOver, defaultHandOver)
	cfg.pace.unknown = cmp.Or(cfg.pace.unknown, defaultUnknown)
	cfg.pace.answerFor = cmp.Or(cfg.pace.answerFor, defaultAnswerFor)
	cfg.pace.bind = cmp.Or(cfg.pace.bind, defaultBind)
	cfg.pace.quiet = cmp.Or(cfg.pace.quiet, defaultQuiet)
	cfg.pace.unmade = cmp.Or(cfg.pace.unmade, defaultUnmade)
	cfg.pace.look = cmp.Or(cfg.pace.look, defaultLook)
	unbound := ratelog.New(cfg.Log, slog.LevelWarn, "binding of the intake not made again")
	return &Intake{cfg: cfg, outbox: outbox{broker: cfg.Out}, logs: logs{
		refused:    ratelog.New(cfg.Log, slog.LevelWarn, "message of the intake refused"),
		retried:    ratelog.New(cfg.Log, slog.LevelWarn, "messages of the intake wait, trying again"),
		unanswered: ratelog.New(cfg.Log, slog.LevelWarn, "answers to messages of the intake not sent"),
		unbound:    unbound,
	}}
}

// Trouble returns why the intake takes no messages; "" if it does, or if it isn't meant to.
func (in *Intake) Trouble() string {
	if why := in.trouble.Load(); why != nil {
		return *why
	}
	return ""
}

// Serve takes messages until ctx ends. It returns within little more than two seconds after
// that. Messages that aren't acked then are delivered again.
func (in *Intake) Serve(ctx context.Context, s Settings) {
	defer in.outbox.close()
	defer in.trouble.Store(nil)
	in.failing = nil
	in.zero()
	pause := retry.Backoff{Min: pauseMin, Max: pauseMax}
	known := time.Now() // when the topic was last known, or the begin
	for ctx.Err() == nil {
		changed := in.cfg.In.Changed()
		began := time.Now()
		err := in.consume(ctx, s)
		switch {
		case ctx.Err() != nil:
		case err == nil: // it wants to begin again
			known = time.Now()
			pause.Reset()
		default:
			if time.Since(began) > pauseMax {
				pause.Reset()
			}
			unmade := errors.Is(err, task.ErrUnknownTopic)
			if !unmade {
				known = time.Now()
			}
			if !unmade || time.Since(known) > in.cfg.pace.unmade { // a scanner makes it within seconds
				in.stands(ctx, err)
			}
			waiting, cancel := context.WithTimeout(ctx, pause.Next())
			select {
			case <-changed:
			case <-waiting.Done():
			}
			cancel()
		}
	}
}

// stands records why nothing is taken in. It logs the first reason, unless there is no
// connection: the connection logs that itself.
func (in *Intake) stands(ctx context.Context, err error) {
	why := err.Error()
	connected, _, _ := in.cfg.In.State()
	if in.trouble.Store(&why); connected && !in.told.Swap(true) {
		in.cfg.Log.WarnContext(ctx, "intake stands still", "error", err)
	}
}

// runs records that messages are taken in.
func (in *Intake) runs(ctx context.Context) {
	in.failing = nil
	if in.trouble.Store(nil); in.told.Swap(false) {
		in.cfg.Log.InfoContext(ctx, "intake takes messages")
	}
}

// began records that a session has begun. That is no sign that messages which failed can be carried
// out now.
func (in *Intake) began(ctx context.Context) {
	if in.failing != nil {
		in.trouble.Store(in.failing)
		return
	}
	in.runs(ctx)
}

// quiet returns a channel that gets a value after a pause, if messages failed.
func (in *Intake) quiet() <-chan time.Time {
	if in.failing == nil {
		return nil
	}
	return time.After(in.cfg.pace.quiet)
}

// zero makes the counters appear, so that rate() sees the first message.
func (in *Intake) zero() {
	for _, verb := range []string{Schedule, IfAbsent, IfPresent, Cancel, Move} {
		in.cfg.Metrics.Tasks.WithLabelValues(verb)
	}
	for _, class := range []string{refusedID, refusedWhen, refusedVerb, refusedPayload, refusedHeaders, refusedRoute,
		refusedLoop, refusedUnreadable, refusedPriority} {
		in.cfg.Metrics.Refused.WithLabelValues(class)
	}
}
