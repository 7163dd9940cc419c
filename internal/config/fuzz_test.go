package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// unplaced reports whether a problem is about the whole document, so that its error names
// neither a key nor a line.
func unplaced(problem string) bool {
	for _, whole := range []string{"must be at most 524288 bytes", "not valid YAML: the parser gave up",
		"not valid YAML: more than "} {
		if strings.HasPrefix(problem, whole) {
			return true
		}
	}
	return false
}

// wantPlaced requires a list of errors, each on one line and with a key or a line of the
// document.
func wantPlaced(t *testing.T, doc []byte, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("%q: got %v, want errors", doc, err)
	}
	lines := 1 + strings.Count(string(doc), "\n") + strings.Count(string(doc), "\r")
	for _, m := range all {
		if m.File == "" || m.Problem == "" || m.Key == "" && m.Line == 0 && !unplaced(m.Problem) || m.Line < 0 ||
			m.Line > lines {
			t.Fatalf("%q: error %+v", doc, m)
		}
		if strings.ContainsFunc(m.Error(), unicode.IsControl) {
			t.Fatalf("%q: error %q is more than a line of text", doc, m.Error())
		}
	}
}

// seedTopics returns documents of topics, good and bad.
func seedTopics() []string {
	return []string{
		"", "shards: 8\n", `{"shards":8,"declare":{"queue":"q"}}`, "declare: {queue: a:b}\n", "a: &b [*b]\n", "<<: {a: 1}",
		"? a\n: b\n", "tick: 1s # x\nbackoff:\n  min: 1ms\n", "exchange: |\n  x\n", "!!map {a: !!int 1}",
		"%YAML 1.2\n---\na: 1",
		"[[[[", "{a: {a: {", "\"\\x", "- - - a", "exchange: \"\\ud83d\\ude00\"", "\t", "a:\n\tb: 1", "*", "&", "|", ">-\n",
		"!", "{?:", "{,}",
		"tick: 1s\nshard: 4\n", "declare.queue: q\n", "\"a\\nbcdefgh\": 1\n", "declare:\n",
		"exchange: ''\ndeclare: {queue: q}",
		"backoff: {max: 10ms}", "intake: {}\n", "exchange: \xff\n", "rate: 5\nrate: 6\n", "exchange: '1e3'\n",
		"routing_key: \"\\u2028\\0\"\n", "exchange: >\n  a\n  b\n",
		"shards: 4096\nexchange: x\nrouting_key: 'yes'\ndeclare: {type: topic, queue: q.q, queue_type: classic}\nheaders: " +
			"lean\ntick: 10ms\nworkers: 1024\nbatch: 1\n" +
			"window: 1\nlease: 1h\nmax_attempts: 1\nbackoff: {min: 1.5s, max: 24h}\nrate: 1000000\npaused: true\n",
	}
}

// FuzzParseTopic: no document makes parsing panic, and an error names its place. A document
// that parses means the same after a draft of it was rendered.
func FuzzParseTopic(f *testing.F) {
	for _, doc := range seedTopics() {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		topic, err := ParseTopic("orders", doc)
		if err != nil {
			wantPlaced(t, doc, err)
			return
		}
		again := ReadDraft("orders", doc).Render()
		if got, err := ParseTopic("orders", again); err != nil || !reflect.DeepEqual(got, topic) {
			t.Fatalf("%q, written again as %q: got %+v, %v; want %+v", doc, again, got, err, topic)
		}
		if third := ReadDraft("orders", again).Render(); string(third) != string(again) {
			t.Fatalf("%q became %q when it was written again", again, third)
		}
	})
}

// FuzzLoad: no file or variable makes loading panic, and an error names its place. Errors in
// topics don't hide the connections. Each topic of a good file equals the topic of its own
// document.
func FuzzLoad(f *testing.F) {
	for _, doc := range []string{
		"redis: {addrs: [a:1], tls: {enabled: false}}\n", "rabbitmq: {urls: [amqp://a:b@c/]}\n",
		"topics: {a: {}, b: {shards: 1}}\n",
		"topics:\n  orders:\n    tick: 1s\n", "log: {level: info}\nlog: {}\n", "redis: *a",
		"redis: {addrs: [a:b:c, 'x':1, a: b]}", "shutdown_timeout: 1",
		"redis: [1\nlog: {}\n", "log: {}\n---\nlog: {}\n", "consul: {prefix: /duefleet, addr: consul}",
		"admin: {listen: 'x:70000'}", "topics: [a]", "topics: {? [a]: b, a b: {}}",
		"redis:\n  addrs: [a:1, b:1]\n  db: 1\n", "rabbitmq:\n  tls: {enabled: true}\n", "\ufefflog: {format: json}\r\n",
	} {
		f.Add([]byte(doc), "DUEFLEET_REDIS_DB=1")
		f.Add([]byte(doc), "DUEFLEET_REDIS_DBS=x")
	}
	for _, doc := range seedTopics() {
		f.Add([]byte("topics:\n  orders:\n    "+strings.ReplaceAll(doc, "\n", "\n    ")), "DUEFLEET_RABBITMQ_URLS=amqp://a,b")
	}
	f.Fuzz(func(t *testing.T, doc []byte, variable string) {
		// Both open the files that they name; an escape could hide the key's name.
		if strings.Contains(string(doc), "_file") || strings.Contains(string(doc), "\\") ||
			strings.Contains(variable, "_FILE") {
			t.Skip("would open files")
		}
		cfg, err := decode("c.yaml", doc, []string{variable})
		if err != nil {
			if cfg != nil {
				t.Fatalf("got %+v beside %v", cfg, err)
			}
			wantPlaced(t, doc, err)
			return
		}
		topics := readFile(doc, &errorList{}).topics
		if !slices.Equal(slices.Sorted(maps.Keys(topics)), slices.Sorted(maps.Keys(cfg.Topics))) {
			t.Fatalf("%q: topics %v, want %v", doc, topics, cfg.Topics)
		}
		for name, topic := range cfg.Topics {
			if got, err := ParseTopic(name, topics[name].doc); err != nil || !reflect.DeepEqual(got, topic) {
				t.Fatalf("%q, topic %s alone is %q: got %+v, %v; want %+v", doc, name, topics[name].doc, got, err, topic)
			}
		}
	})
}

// FuzzDraft: no assignment makes a draft panic, and a mistake names its place. A good draft has
// the assigned text, and reads as the same topic when it is rendered.
func FuzzDraft(f *testing.F) {
	for _, assignment := range []string{
		"shards=8", "shards=", "shard=", "=8", "shards", "declare=", "declare.queue=q", "declare=q", "declare.queue=\"",
		"exchange=a=b",
		"exchange= x ", "exchange=# x", "exchange=\n", "exchange=\u2028", "exchange=0x1f", "exchange=~", "exchange=\xff",
		"backoff.max=1h", "a.b.c=1", ".=1", "tick=1h",
	} {
		f.Add([]byte("backoff: {max: 1m}\nshards: 8\n"), assignment)
		f.Add([]byte("shard: 0\n"), assignment)
	}
	f.Fuzz(func(t *testing.T, doc []byte, assignment string) {
		d := ReadDraft("orders", doc)
		d.Assign(assignment)
		want, err := d.Topic()
		if err != nil {
			if _, _, good := strings.Cut(assignment, "="); good && !strings.HasPrefix(assignment, "=") {
				wantPlaced(t, doc, err)
			}
			return
		}
		if got, err := ParseTopic("orders", d.Render()); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q with %q became %q: got %+v, %v; want %+v", doc, assignment, d.Render(), got, err, want)
		}
		key, text, _ := strings.Cut(assignment, "=")
		f, known := topicFields().find(key)
		if !known || text == "" {
			return
		}
		value, _ := f.fromText(text)
		if got := Effective(want)[key]; got != show(value) {
			t.Fatalf("%q with %q: %s is %q, want %q", doc, assignment, key, got, show(value))
		}
	})
}
