package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTopicsThatShareAnIntakesQueueAreRefused: with another intake, its refused messages, or
// a queue that declare makes. Topics may share an exchange, and queues that no intake has.
func TestTopicsThatShareAnIntakesQueueAreRefused(t *testing.T) {
	t.Parallel()
	const shared = "topics would share queue q, which an intake needs alone: it is "
	for topics, want := range map[string]string{
		"{b: {intake: {exchange: x, queue: q}}, c: {intake: {exchange: y, queue: q}}}": "b.intake.queue: " + shared +
			"intake.queue of b and intake.queue of c",
		"{b: {intake: {exchange: x, queue: q.refused}}, c: {intake: {exchange: y, queue: q}}}": "b.intake.queue: topics " +
			"would share queue q.refused, which an intake needs alone: it is intake.queue of b and the queue for refused " +
			"messages of c",
		"{b: {declare: {queue: q}}, c: {intake: {exchange: y, queue: q}}}": "c.intake.queue: " + shared +
			"declare.queue of b and intake.queue of c",
		"{b: {declare: {queue: due, dead_letter: q}}, c: {intake: {exchange: y, queue: q}}}": shared +
			"declare.dead_letter of b and intake.queue of c",
		"{b: {declare: {queue: q.refused}}, c: {intake: {exchange: y, queue: q}}}": "it is declare.queue of b and the " +
			"queue for refused messages of c",
		"{b: {intake: {exchange: x, queue: duefleet.c.intake}}, c: {intake: {exchange: y}}}": "share queue duefleet.c.intake",
		"{b: {intake: {exchange: x}}, c: {intake: {exchange: x}}}":                           "",
		"{b: {declare: {queue: q}}, c: {declare: {queue: q}}}":                               "",
		"{b: {intake: {queue: q}}, c: {intake: {exchange: y, queue: q}}}":                    "",
	} {
		readsAs(t, topics, want)
	}
}

// TestTopicsInACircleAreRefused: the error names the way. A chain of topics is none.
func TestTopicsInACircleAreRefused(t *testing.T) {
	t.Parallel()
	const twoTopics = "b delivers to exchange x, the intake of c; c delivers to exchange y, the intake of b"
	for topics, want := range map[string]string{
		"{b: {exchange: x, intake: {exchange: y}}, c: {exchange: y, intake: {exchange: x}}}": "b.intake.exchange: " +
			"tasks would go round in a circle: " + twoTopics,
		"{a: {exchange: y, intake: {exchange: z}}, b: {exchange: x, intake: {exchange: y}}, " +
			"c: {exchange: y, intake: {exchange: x}}}": twoTopics,
		"{a: {exchange: x, intake: {exchange: z}}, b: {exchange: y, intake: {exchange: x}}, " +
			"c: {exchange: z, intake: {exchange: y}}}": "a delivers to exchange x, the intake of b; b delivers to exchange y, " +
			"the intake of c; c delivers to exchange z, the intake of a",
		"{a: {exchange: x, intake: {exchange: z}}, b: {exchange: y, intake: {exchange: x}}, c: {exchange: z}}":      "",
		"{a: {exchange: y, intake: {exchange: x}}, b: {exchange: y, intake: {exchange: x}}, c: {exchange: ''}}":     "",
		"{b: {exchange: x, intake: {exchange: y}}, c: {exchange: y, intake: {exchange: ''}}, d: {exchange: other}}": "",
		"{b: {exchange: '', routing_key: q, intake: {exchange: y, queue: q}}}": "b.intake.queue: tasks would go round in a " +
			"circle: b delivers to queue q, the intake of b",
		"{b: {exchange: '', routing_key: q, intake: {exchange: y}}, c: {exchange: y, intake: {exchange: x, queue: q}}}": "" +
			"b.intake.exchange: tasks would go round in a circle: b delivers to queue q, the intake of c; " +
			"c delivers to exchange y, the intake of b",
		"{b: {exchange: x, intake: {exchange: y, queue: q}}, c: {exchange: '', routing_key: q, intake: {exchange: x}}}": "" +
			"b.intake.queue: tasks would go round in a circle: b delivers to exchange x, the intake of c; " +
			"c delivers to queue q, the intake of b",
		"{b: {exchange: '', routing_key: q}, c: {exchange: y, intake: {exchange: x, queue: q}}}": "",
		"{b: {exchange: '', routing_key: due, intake: {exchange: y, queue: q}}}":                 "",
		"{b: {exchange: x, routing_key: q, intake: {exchange: y, queue: q}}, c: {exchange: y}}":  "",
	} {
		readsAs(t, topics, want)
	}
}

// readsAs reads topics from a document of their own, and as a part of a configuration. Both
// must give an error of one line with the text want; "": none.
func readsAs(t *testing.T, topics, want string) {
	t.Helper()
	dir := t.TempDir()
	document, configuration := filepath.Join(dir, "topics.yaml"), filepath.Join(dir, "config.yaml")
	for path, text := range map[string]string{document: topics, configuration: "topics: " + topics} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, alone := ReadTopics(document)
	_, whole := Load(configuration, nil)
	for name, err := range map[string]error{"topics": alone, "config": whole} {
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s %s: %v, want %s", name, topics, err, want)
		}
	}
}

// TestConflictsOfSomeTopics: only those in which one of the named topics takes part.
func TestConflictsOfSomeTopics(t *testing.T) {
	t.Parallel()
	topics := map[string]Topic{}
	for name, doc := range map[string]string{
		"a": "{exchange: y, intake: {exchange: z}}",
		"b": "{exchange: x, intake: {exchange: y}}",
		"c": "{exchange: y, intake: {exchange: x}}",
		"d": "{intake: {exchange: u, queue: q}}",
		"e": "{intake: {exchange: v, queue: q}}",
	} {
		topic, err := ParseTopic(name, []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		topics[name] = topic
	}
	for names, want := range map[string]string{
		"": "b intake.exchange, d intake.queue", "a": "", "c": "b intake.exchange", "b c": "b intake.exchange",
		"e": "d intake.queue", "a b e": "b intake.exchange, d intake.queue",
	} {
		var got []string
		for _, c := range Conflicts(topics, strings.Fields(names)...) {
			got = append(got, c.Topic+" "+c.Key)
		}
		if slices.Sort(got); strings.Join(got, ", ") != want {
			t.Errorf("%q: got %v, want %s", names, got, want)
		}
	}
}
