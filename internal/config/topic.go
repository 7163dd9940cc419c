package config

import (
	"time"

	"github.com/duefleet/duefleet/task"
)

// Topic is how one topic's tasks are stored, looked for and forwarded.
type Topic struct {
	// Shards is M, the number of shards, 1 to 4096. Defaults to 4.
	Shards int
	// Exchange is where due tasks are published; it must exist unless Declare
	// is given. An empty one that was written down is AMQP's default exchange.
	// Defaults to the topic's name.
	Exchange string
	// RoutingKey is what they are published with. Defaults to the topic's name.
	RoutingKey string
	// Declare asks for exchange, queue and binding to be made. Defaults to nil.
	Declare *Declare
	// Tick is how long a worker stays with the shards its tickets drew, 10ms
	// to 1m. Defaults to 1s.
	Tick time.Duration
	// Workers is their number per scanner, up to 1024, and each attends one
	// shard at a time; 0 is as many as it takes for the fleet to cover all
	// shards, at most 64, which then attend several each. Defaults to 0.
	Workers int
	// Batch is the most tasks in one claim, 1 to 1000. Defaults to 500.
	Batch int
	// Window is the most unconfirmed messages a scanner has in flight, 1 to
	// 100000. Defaults to 2000.
	Window int
	// Lease is how long a claim holds, 1s to 1h. Defaults to 30s.
	Lease time.Duration
	// MaxAttempts is how often the broker returns or refuses a task before it
	// is parked, 1 to 1000. Defaults to 10.
	MaxAttempts int
	Backoff     Backoff
	// Rate is tasks a second over the whole fleet, up to a million; 0 is no
	// limit. Defaults to 0.
	Rate int
	// Paused stops forwarding; tasks go on being stored. Defaults to false.
	Paused bool
}

// Declare names what a scanner makes at the broker, all of it durable.
type Declare struct {
	// Type of the exchange: direct, topic or fanout. Defaults to direct.
	Type string
	// Queue is bound to the exchange with the topic's routing key. Required.
	Queue string
	// QueueType is quorum or classic. Defaults to quorum.
	QueueType string
}

// Backoff is how long a task waits after the broker returned or refused it:
// Min after the first attempt, doubled with each, never over Max.
type Backoff struct {
	// Min is 1ms to 24h. Defaults to 1s.
	Min time.Duration
	// Max is Min to 24h. Defaults to 5m.
	Max time.Duration
}

// DefaultTopic returns the Topic of a document of that name without any key: {}.
func DefaultTopic(name string) Topic {
	return Topic{
		Shards:      4,
		Exchange:    name,
		RoutingKey:  name,
		Tick:        time.Second,
		Batch:       500,
		Window:      2000,
		Lease:       30 * time.Second,
		MaxAttempts: 10,
		Backoff:     Backoff{Min: time.Second, Max: 5 * time.Minute},
	}
}

// ParseTopic reads one topic's document, YAML or JSON, as strictly as Load
// reads a file, and refuses an empty one besides: a write that lost its value would
// set every key to its default, the number of shards too. The error is Mistakes,
// with name in the place of a file.
func ParseTopic(name string, doc []byte) (Topic, error) {
	rep := &report{file: name}
	given := readTopic(name, doc, rep)
	if line, _ := unparsed(doc); line == 0 && len(rep.list)+len(given.values)+len(given.sections) == 0 {
		rep.add("", 1, "is empty; must be keys with values, or {} for a topic with every default")
	}
	t := buildTopic(name, given, rep)
	if err := rep.err(); err != nil {
		return Topic{}, err
	}
	return t, nil
}

// readTopic collects what the document says, each key checked by itself.
func readTopic(name string, doc []byte, rep *report) settings {
	if err := task.CheckTopic(name); err != nil {
		rep.add("", 0, "%v", err)
	}
	w := walker[Topic]{table: topicFields(), rep: rep, out: newSettings()}
	if root := parse(doc, maxTopicMarks, rep); root != nil {
		w.mapping("", root)
	}
	return w.out
}

// buildTopic lays the settings over the defaults and checks what several keys
// must keep together.
func buildTopic(name string, s settings, rep *report) Topic {
	t := DefaultTopic(name)
	if _, there := s.sections["declare"]; there {
		t.Declare = defaultDeclare()
	}
	topicFields().apply(&t, s)
	if t.Declare != nil {
		checkDeclare(t, s, rep)
	}
	if t.Backoff.Min > t.Backoff.Max {
		rep.about(s, "backoff.min", "must be at most backoff.max, which is %s; got %s", show(t.Backoff.Max), show(t.Backoff.Min))
	}
	return t
}

func checkDeclare(t Topic, s settings, rep *report) {
	_, refused := s.refused["declare.queue"]
	if t.Declare.Queue == "" && !refused {
		rep.about(s, "declare.queue", "is required where declare is given")
	}
	if t.Exchange == "" {
		rep.about(s, "exchange", "must have a name where declare is given: AMQP's default exchange can't be declared")
	}
}

func defaultDeclare() *Declare {
	return &Declare{Type: "direct", QueueType: "quorum"}
}
