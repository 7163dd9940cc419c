package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseTopic(t *testing.T) {
	t.Parallel()
	want := DefaultTopic("orders")
	want.Shards = 8
	want.RoutingKey = "order.due"
	want.Declare = &Declare{Type: "direct", Queue: "q", QueueType: "classic", DeadLetter: "dead"}
	want.Backoff.Max = time.Hour
	for _, doc := range []string{
		"shards: 8\nrouting_key: order.due\ndeclare: {queue: q, queue_type: classic, dead_letter: dead}\nbackoff:\n  max: " +
			"1h\n",
		`{"shards":8,"routing_key":"order.due","declare":{"queue":"q","queue_type":"classic","dead_letter":"dead"},"backoff":{"max":"1h"}}`,
		"{\n\t\"shards\": 8,\n\t\"routing_key\": \"order\\u002edue\",\n\t\"declare\": {\"queue\": \"q\", \"queue_type\": " +
			"\"classic\", \"dead_letter\": \"dead\"},\n\t\"backoff\": {\"max\": \"60m\"}\n}",
		"---\r\nshards: 8\r\nrouting_key: 'order.due'\r\ndeclare:\r\n  queue: q\r\n  queue_type: \"classic\"\r\n  " +
			"dead_letter: dead\r\nbackoff: {max: 1h}\r\n",
	} {
		got, err := ParseTopic("orders", []byte(doc))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", doc, got, err)
		}
	}
}

func TestParseTopicErrors(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"tick: 1s\nshard: 4\n":                                         `orders:2: shard: unknown key; did you mean shards?`,
		"orders:\n  shards: 4\n":                                       `orders:1: orders: unknown key; did you mean workers?`,
		"declare.queue: q\n":                                           `orders:1: declare.queue: unknown key`,
		"\"a\\nbcdefgh\": 1\n":                                         `orders:1: "a\nbcdefgh": unknown key`,
		"tick: 1h\n":                                                   `orders:1: tick: must be 10ms to 1m; got 1h`,
		"tick: 1s\nheaders: small\n":                                   `orders:2: headers: must be one of full, lean; got "small"`,
		"header: lean\n":                                               `orders:1: header: unknown key; did you mean headers?`,
		"declare:\n":                                                   `orders:1: declare.queue: is required where declare is given`,
		"\ndeclare: {queue: }\n":                                       `orders:2: declare.queue: must be a text, in quotes if it looks like something else; got no value`,
		"exchange: ''\ndeclare: {queue: q}":                            `orders:1: exchange: must have a name where declare is given: AMQP's default exchange can't be declared`,
		"declare: {queue: q, dead_letter: q}":                          `orders:1: declare.dead_letter: must be another name than exchange and declare.queue; got q`,
		"declare: {queue: q, dead_letter: orders}":                     `orders:1: declare.dead_letter: must be another name than exchange and declare.queue; got orders`,
		"declare: {queue: q, dead_letter: amq.q}":                      `orders:1: declare.dead_letter: must not begin with amq., which is the broker's own`,
		"backoff: {max: 10ms}":                                         `orders:1: backoff.min: must be at most backoff.max, which is 10ms; got 1s`,
		"intake: {exchange: orders}":                                   `orders:1: intake.exchange: must be another exchange than exchange: a task that is due would come back as a new one; got orders`,
		"intake: {exchange: in, type: direct}":                         `orders:1: intake.type: must not be direct, which can't send every routing key to one queue; a topic exchange does: set topic. Publishers name only the exchange, so its type doesn't matter to them`,
		"intake: {exchange: in, queue: ''}":                            `orders:1: intake.queue: must have a name where intake.exchange is given`,
		"{declare: {queue: q, dead_letter: d}, intake: {exchange: d}}": `orders:1: intake.exchange: must be another exchange than declare.dead_letter: a task that is due would come back as a new one; got d`,
		"{declare: {queue: q}, intake: {exchange: in, queue: q}}":      `orders:1: intake.queue: must be another queue than declare.queue, also with .refused at its end; got q`,
		"{declare: {queue: q, dead_letter: d.refused}, intake: {exchange: in, queue: d}}": `orders:1: intake.queue: must not make declare.dead_letter the exchange for refused messages, which is its name and .refused; got d` + "\n" +
			"orders:1: intake.queue: must be another queue than declare.dead_letter, also with .refused at its end; got d",
		"{exchange: q.refused, intake: {exchange: in, queue: q}}": `orders:1: intake.queue: must not make exchange the exchange for refused messages, which is its name and .refused; got q`,
		strings.Repeat("[", 200_000):                              `orders: not valid YAML: more than 4096 lines, brackets and other marks`,
		strings.Repeat("a: 1\n", 100_000):                         `orders: not valid YAML: more than 4096 lines, brackets and other marks`,
	} {
		_, err := ParseTopic("orders", []byte(doc))
		wantLines(t, err, want)
	}
	_, err := ParseTopic("a/b", nil)
	wantLines(t, err, `a/b: topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 3 bytes with '/' at byte 1`)
}

// An explicitly empty exchange is AMQP's default exchange.
func TestDefaultExchangeIsNotTheDefault(t *testing.T) {
	t.Parallel()
	got, err := ParseTopic("orders", []byte(`exchange: ""`))
	if err != nil || got.Exchange != "" || got.RoutingKey != "orders" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestAnIntakeIsOffWithoutAnExchange: the queue's name is made of the topic's.
func TestAnIntakeIsOffWithoutAnExchange(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]*Intake{
		"{}":                       nil,
		"intake: {}":               {Type: "topic", Queue: "duefleet.orders.intake", Key: IntakeKeyMessageID},
		"intake: {exchange: ''}":   {Type: "topic", Queue: "duefleet.orders.intake", Key: IntakeKeyMessageID},
		"intake: {exchange: in}":   {Exchange: "in", Type: "topic", Queue: "duefleet.orders.intake", Key: IntakeKeyMessageID},
		"intake: {queue: amq.not}": {},
		"intake: {exchange: in, type: headers, queue: q, headers: true}": {Exchange: "in", Type: "headers", Queue: "q",
			Key: IntakeKeyMessageID, Headers: true},
	} {
		got, err := ParseTopic("orders", []byte(doc))
		if want != nil && *want == (Intake{}) {
			wantLines(t, err, "orders:1: intake.queue: must not begin with amq., which is the broker's own")
			continue
		}
		if err != nil || !reflect.DeepEqual(got.Intake, want) || got.TakesIn() != (want != nil && want.Exchange != "") {
			t.Errorf("%s: got %+v, %v", doc, got.Intake, err)
		}
	}
}

// TestAPauseMayHaveAnEnd: only a time with a zone is valid, in quotes or not.
func TestAPauseMayHaveAnEnd(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for doc, want := range map[string]time.Time{
		"paused: true\npaused_until: 2026-12-01T10:00:00Z\n":            end,
		"paused: true\npaused_until: \"2026-12-01T11:00:00.000+01:00\"": end,
		`{"paused": true, "paused_until": "2026-12-01T10:00:00Z"}`:      end,
		"paused: false\npaused_until: 2026-12-01T10:00:00Z\n":           {},
		"paused: true\npaused_until: ''\npaused_reason: \"it's: on\"\n": {},
	} {
		topic, err := ParseTopic("orders", []byte(doc))
		if got := topic.PauseEnds(); err != nil || !got.Equal(want) {
			t.Errorf("%q ends at %s, %v; want %s", doc, got, err, want)
		}
	}
	for doc, want := range map[string]string{
		"paused_until: 2h":                   `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2h"`,
		"paused_until: 2026-12-01":           `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2026-12-01"`,
		"paused_until: 2026-12-01T10:00:00 ": `orders:1: paused_until: must be a time as in 2026-12-01T10:00:00Z; got "2026-12-01T10:00:00"`,
	} {
		_, err := ParseTopic("orders", []byte(doc))
		wantLines(t, err, want)
	}
}

// TestNewerNamesWhatOlderScannersRefuse: settings in use, and not those with their default.
func TestNewerNamesWhatOlderScannersRefuse(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"rate: 5":             "map[]",
		"history: 0s":         "map[]",
		"history: 1h":         "map[history:4]",
		"declare: {queue: q}": "map[]",
		"intake: {queue: q}":  "map[intake:3]",
		"paused: true\npaused_until: 2126-12-01T10:00:00Z":   "map[]",
		"declare: {queue: q, type: headers, dead_letter: d}": "map[declare.dead_letter:2 declare.type=headers:3]",
		"intake: {queue: q}\nhistory: 1h":                    "map[history:4 intake:3]",
	} {
		topic := ParseDocument("orders", []byte(doc), 1)
		if topic.Err != nil || fmt.Sprint(Newer(topic.Topic)) != want {
			t.Errorf("%s: %v, %v; want %s", doc, Newer(topic.Topic), topic.Err, want)
		}
	}
	if got := Format(); got != 4 {
		t.Errorf("the format is %d", got)
	}
}
