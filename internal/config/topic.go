package config

import (
	"time"

	"github.com/duefleet/duefleet/task"
)

// LeanHeaders is the value of Topic.Headers for messages with only the headers that a
// consumer needs.
const LeanHeaders = "lean"

// Topic holds one topic's settings.
type Topic struct {
	// M, the number of sorted sets that hold the tasks, 1 to 4096.
	Shards int `yaml:"shards" default:"4" check:"1..4096"`
	// Must exist unless declare is given; the topic's name by default.
	//
	// In a document, an empty text means AMQP's default exchange.
	Exchange string `yaml:"exchange" check:"0..255"`
	// The topic's name by default.
	RoutingKey string `yaml:"routing_key" check:"0..255"`
	// Optional, missing by default; with it, scanners create a durable exchange, queue and binding.
	Declare *Declare `yaml:"declare"`
	// Optional, missing by default; with it, every AMQP client schedules tasks by publishing to an exchange.
	Intake *Intake `yaml:"intake" since:"3"`
	// Headers of a message: full, or lean, which costs RabbitMQ less and omits what a consumer can do without.
	Headers string `yaml:"headers" default:"full" check:"full|lean"`
	// How long a worker polls the same shards before it draws others, 10ms to 1m.
	Tick time.Duration `yaml:"tick" default:"1s" check:"10ms..1m"`
	// Workers per scanner, up to 1024, each with one shard; 0: enough for the fleet to cover all shards, at most 16.
	Workers int `yaml:"workers" default:"0" check:"0..1024"`
	// Most tasks in one claim, 1 to 1000.
	Batch int `yaml:"batch" default:"500" check:"1..1000"`
	// Most unconfirmed messages a scanner has in flight for this topic, 1 to 100000.
	Window int `yaml:"window" default:"2000" check:"1..100000"`
	// How long a claimed task belongs to its scanner; then any scanner may claim it again; 1s to 1h.
	Lease time.Duration `yaml:"lease" default:"30s" check:"1s..1h"`
	// Returns or refusals by the broker after which a task is parked, 1 to 1000.
	MaxAttempts int     `yaml:"max_attempts" default:"10" check:"1..1000"`
	Backoff     Backoff `yaml:"backoff"`
	// Tasks a second over the whole fleet, up to 1000000; 0: no limit.
	Rate int `yaml:"rate" default:"0" check:"0..1000000"`
	// How long the last events of each task are kept, for `producer get --history`, up to 168h; 0s: not at all.
	History time.Duration `yaml:"history" default:"0s" check:"0s..168h" since:"4"`
	// True: tasks are accepted and stored, but none is forwarded.
	Paused bool `yaml:"paused" default:"false"`
	// Time at which a pause ends by itself, RFC 3339, by Redis's clock; empty: somebody must end it.
	PausedUntil string `yaml:"paused_until" check:"moment"`
	// Why it is paused, for people; up to 512 bytes.
	PausedReason string `yaml:"paused_reason" check:"0..512"`
}

// Format returns a number that rises by one when topics' documents get new keys: the largest of
// all tags since. Each member of a fleet reports its Format. A member with a lower one refuses
// documents with the newer keys.
func Format() int {
	newest := 0
	for _, f := range topicFields() {
		newest = max(newest, f.since)
	}
	return newest
}

// Newer returns which of a topic's settings scanners of older versions refuse, each with the
// Format that has it. Settings with their default value are left out: nobody has to write them.
// PausedUntil and PausedReason are left out, too: see topicconfig.Pause.
func Newer(t Topic) map[string]int {
	all := map[string]int{}
	for _, f := range topicFields() {
		value, there := f.of(t)
		switch {
		case f.since == 0 || !there:
		case f.sinceKey != "":
			all[f.sinceKey] = f.since
		case f.sinceWord == "" && show(value) != f.byDefault:
			all[f.key] = f.since
		case f.sinceWord != "" && show(value) == f.sinceWord:
			all[f.key+"="+f.sinceWord] = f.since
		}
	}
	return all
}

// PauseEnds returns when a pause ends by itself. It is zero if the topic isn't paused or
// somebody must end the pause.
func (t Topic) PauseEnds() time.Time {
	end, err := time.Parse(time.RFC3339, t.PausedUntil)
	if !t.Paused || err != nil {
		return time.Time{}
	}
	return end
}

// Declare describes the exchange and the queue that a scanner creates at the broker. Both
// are durable.
type Declare struct {
	// Type of the exchange: direct, topic, fanout or headers.
	Type string `yaml:"type" default:"direct" check:"direct|topic|fanout|headers" since:"headers=3"`
	// Required; bound to the exchange with routing_key.
	//
	// It gets every message of a fanout or headers exchange.
	Queue string `yaml:"queue" check:"queue"`
	// Quorum or classic.
	QueueType string `yaml:"queue_type" default:"quorum" check:"quorum|classic"`
	// Name of an exchange and a queue to create, which keep messages that consumers reject; empty: they are lost.
	//
	// RabbitMQ refuses another value for a queue that exists. A default other than none
	// would therefore stop such topics after an upgrade. See docs/adr/0020.
	DeadLetter string `yaml:"dead_letter" check:"dead letter" since:"2"`
}

// Backoff is how long a task waits after the broker returned or refused it:
// Min after the first attempt, doubled with each, never over Max.
type Backoff struct {
	// Wait after the first attempt, doubled with each; 1ms to 24h.
	Min time.Duration `yaml:"min" default:"1s" check:"1ms..24h"`
	// The longest wait, min to 24h.
	Max time.Duration `yaml:"max" default:"5m" check:"1ms..24h"`
}

// DefaultTopic returns the Topic of an empty document {} of that name.
func DefaultTopic(name string) Topic {
	t := Topic{Exchange: name, RoutingKey: name}
	setDefaults(&t)
	return t
}

// ParseTopic reads one topic's document, YAML or JSON, as strictly as Load reads a file.
// It also refuses an empty document: a write that lost its value would set every key to
// its default, even the number of shards. The error is Errors, with name in place of the
// file.
func ParseTopic(name string, doc []byte) (Topic, error) {
	errs := &errorList{file: name}
	given := readTopic(name, doc, errs)
	if line, _ := unparsed(doc); line == 0 && len(errs.list)+len(given.values)+len(given.sections) == 0 {
		errs.add("", 1, "is empty; must be keys with values, or {} for a topic with every default")
	}
	t := buildTopic(name, given, errs)
	if err := errs.err(); err != nil {
		return Topic{}, err
	}
	return t, nil
}

// readTopic collects the document's settings and checks each key by itself.
func readTopic(name string, doc []byte, errs *errorList) settings {
	if err := task.CheckTopic(name); err != nil {
		errs.add("", 0, "%v", err)
	}
	w := walker{table: topicFields(), errs: errs, out: newSettings()}
	if root := parse(doc, maxTopicMarks, errs); root != nil {
		w.mapping("", root)
	}
	return w.out
}

// buildTopic applies the settings to the defaults and checks rules across keys.
func buildTopic(name string, s settings, errs *errorList) Topic {
	t := DefaultTopic(name)
	if s.holds("declare") {
		t.Declare = &Declare{}
		setDefaults(t.Declare)
	}
	if s.holds("intake") {
		t.Intake = newIntake(name)
	}
	s.apply(&t)
	if t.Declare != nil {
		checkDeclare(t, s, errs)
	}
	if t.TakesIn() {
		checkIntake(t, s, errs)
	}
	if t.Backoff.Min > t.Backoff.Max {
		errs.about(s, "backoff.min", "must be at most backoff.max, which is %s; got %s", show(t.Backoff.Max),
			show(t.Backoff.Min))
	}
	return t
}

func checkDeclare(t Topic, s settings, errs *errorList) {
	_, refused := s.refused["declare.queue"]
	if t.Declare.Queue == "" && !refused {
		errs.about(s, "declare.queue", "is required where declare is given")
	}
	if d := t.Declare.DeadLetter; d != "" && (d == t.Exchange || d == t.Declare.Queue) {
		errs.about(s, "declare.dead_letter", "must be another name than exchange and declare.queue; got %s", show(d))
	}
	if t.Exchange == "" {
		errs.about(s, "exchange", "must have a name where declare is given: AMQP's default exchange can't be declared")
	}
}
