package topicconfig

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
)

// changes takes a key with its old and its new value, then the next.
func changes(texts ...string) (all []config.Change) {
	for c := range slices.Chunk(texts, 3) {
		all = append(all, config.Change{Key: c[0], Old: c[1], New: c[2]})
	}
	return all
}

func TestEditMakesANewDocument(t *testing.T) {
	t.Parallel()
	doc, diff, err := edit("orders", nil, []string{"shards=8", "declare.queue=q"})
	check.OK(t, err)
	if want := "shards: 8\ndeclare:\n  queue: q\n"; string(doc) != want {
		t.Errorf("got %q, want %q", doc, want)
	}
	if want := changes("shards", "", "8", "declare.queue", "", "q"); !slices.Equal(diff, want) {
		t.Errorf("got %v, want %v", diff, want)
	}
}

func TestEditChangesADocument(t *testing.T) {
	t.Parallel()
	const doc = "# comment\nbackoff: {max: 1m} # slow\npaused: false\n\n# for the sale\nshards: 8   # of 4\n"
	for _, c := range []struct {
		name   string
		assign []string
		doc    string
		diff   []config.Change
	}{
		{"a value", []string{"shards=12"}, "# comment\nbackoff: {max: 1m} # slow\npaused: false\n\n# for the " +
			"sale\nshards: 12   # of 4\n", changes("shards", "8", "12")},
		{"back to the default", []string{"shards="},
			"# comment\nbackoff: {max: 1m} # slow\npaused: false\n\n# for the sale\n", changes("shards", "8", "4")},
		{"a whole section", []string{"backoff=", "paused=true"},
			"# comment\npaused: true\n\n# for the sale\nshards: 8   # of 4\n",
			changes("backoff.max", "1m", "5m", "paused", "false", "true")},
		{"nothing new", []string{"tick=1000ms"}, doc + "tick: 1s\n", nil},
		{"a text like a number", []string{"exchange=12"}, doc + "exchange: \"12\"\n", changes("exchange", "orders", "12")},
		{"a value with =", []string{"exchange=a=b"}, doc + "exchange: \"a=b\"\n", changes("exchange", "orders", "a=b")},
		{
			"a section", []string{"declare.queue=q"}, doc + "declare:\n  queue: q\n",
			changes("declare.type", "", "direct", "declare.queue", "", "q", "declare.queue_type", "", "quorum"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, diff, err := edit("orders", []byte(doc), c.assign)
			if err != nil || string(got) != c.doc || !slices.Equal(diff, c.diff) {
				t.Errorf("got %q, %v, %v", got, diff, err)
			}
		})
	}
}

// TestEditTouchesItsLinesAlone: the text around a setting stays as it is.
func TestEditTouchesItsLinesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		doc    string
		assign []string
		want   string
	}{
		{"backoff:   # slow\n  # least\n  min: 1s  # a\n\n  max: 5m\n# tail\nrate: 1\n", []string{"backoff.min=2s"},
			"backoff:   # slow\n  # least\n  min: 2s  # a\n\n  max: 5m\n# tail\nrate: 1\n"},
		{"backoff:\n    min: 1s\n\n# tail\nrate: 1\n", []string{"backoff.max=9m"},
			"backoff:\n    min: 1s\n    max: 9m\n\n# tail\nrate: 1\n"},
		{"backoff:\n  min: 1s\n  max: 5m\n# tail\n", []string{"backoff.min="}, "backoff:\n  max: 5m\n# tail\n"},
		{"backoff:\n  min: 1s\n# tail\nrate: 1\n", []string{"backoff.min="}, "# tail\nrate: 1\n"},
		{"backoff: {min: 2s} # a\n", []string{"backoff.max=9m"}, "backoff: {min: 2s, max: 9m} # a\n"},
		{"exchange: \"a # b\" # c\n", []string{"exchange=d"}, "exchange: d # c\n"},
		{"exchange: 'it''s # b' # c\n", []string{"exchange=d"}, "exchange: d # c\n"},
		{"exchange: |\n  a\n  # b\nrate: 1\n", []string{"exchange=d"}, "exchange: d\nrate: 1\n"},
		{"shards: 8\n  # of 4\nrate: 1\n", []string{"shards=9"}, "shards: 9\n  # of 4\nrate: 1\n"},
		{"exchange: a\n  b\n  # c\nrate: 1\n", []string{"exchange=d"}, "exchange: d\n  # c\nrate: 1\n"},
		{"backoff:\n# a\n  min: 1s\nrate: 1\n", []string{"backoff.min=2s"}, "backoff:\n# a\n  min: 2s\nrate: 1\n"},
		{"# a\r\nshards: 8 # b\r\nrate: 1\r\n", []string{"shards=9"}, "# a\r\nshards: 9 # b\r\nrate: 1\r\n"},
		{"--- # a\nshards: 8", []string{"shards=9", "rate=2"}, "--- # a\nshards: 9\nrate: 2\n"},
		{"# a\nshard: 8 # b\nrate: 1 # c\n", []string{"shard=", "shards=8"}, "# a\nrate: 1 # c\nshards: 8\n"},
	} {
		got, _, err := edit("orders", []byte(c.doc), c.assign)
		if err != nil || string(got) != c.want {
			t.Errorf("%q %v:\ngot  %q, %v\nwant %q", c.doc, c.assign, got, err, c.want)
		}
	}
}

// TestEditWritesAnewWhatItCannotEdit: JSON becomes YAML in the order of the example file.
func TestEditWritesAnewWhatItCannotEdit(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{"rate": 1, "shards": 8, "backoff": {"min": "2s"}}`,
		"{\n\t\"rate\": 1,\n\t\"shards\": 8,\n\t\"backoff\": {\"min\": \"2s\"}\n}\n",
		"{rate: 1, shards: 8, backoff: {min: 2s}}",
	} {
		got, _, err := edit("orders", []byte(doc), []string{"shards=9"})
		if want := "shards: 9\nbackoff:\n  min: 2s\nrate: 1\n"; err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", doc, got, err, want)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	for assignment, want := range map[string]string{
		"shards":                 `orders: must be key=value; got "shards"`,
		"=8":                     `orders: must be key=value; got "=8"`,
		"shard=8":                `orders: shard: unknown key; did you mean shards?`,
		"shards.=8":              `orders: shards.: unknown key; did you mean shards?`,
		"shard=":                 `orders: shard: unknown key; did you mean shards?`,
		"declare.queues=q":       `orders: declare.queues: unknown key; did you mean declare.queue?`,
		"declare=q":              `orders: declare: is a section; set one of its keys: type, queue, queue_type, dead_letter`,
		"declare.type=topic":     `orders: declare.queue: is required where declare is given`,
		"declare.type=header":    `orders: declare.type: must be one of direct, topic, fanout, headers; got "header"`,
		"declare.queue=amq.gone": `orders: declare.queue: must not begin with amq., which is the broker's own`,
		"tick=5":                 `orders: tick: want a duration with a unit, as in 30s, 30m or 2d; got "5"`,
		"backoff.max=1ms":        `orders: backoff.min: must be at most backoff.max, which is 1ms; got 1s`,
	} {
		_, _, err := edit("orders", nil, []string{assignment})
		wantMistakes(t, err, want)
	}
	_, _, err := edit("orders", nil, []string{"shards=8", "shards=9"})
	wantMistakes(t, err, `orders: shards: assigned twice`)
	_, _, err = edit("orders", []byte("shards: 0\ntick: 1s\nwindow: 0\n"), []string{"shards=8"})
	wantMistakes(t, err, `orders:3: window: must be 1 to 100000; got 0`)
	_, _, err = edit("orders", []byte("declare: {queue: q, type: topic}\n"), []string{"declare.queue="})
	wantMistakes(t, err, `orders:1: declare.queue: is required where declare is given`)
}

// wantMistakes requires config.Errors with these lines.
func wantMistakes(t *testing.T, err error, want string) {
	t.Helper()
	if got, are := errors.AsType[config.Errors](err); !are || got.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEditMendsABrokenDocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		doc    string
		assign []string
		want   string
	}{
		{"shards: 0\n", []string{"shards=8"}, "shards: 8\n"},
		{"shards: 0\nrate: 5\n", []string{"shards="}, "rate: 5\n"},
		{"shard: 8\nrate: 5\n", []string{"shard="}, "rate: 5\n"},
		{"rate: 5\nrate: 6\n", []string{"rate=7"}, "rate: 7\n"},
		{"declare: q\n", []string{"declare="}, "{}\n"},
		{"declare: {type: header}\nrate: 5\n", []string{"declare="}, "rate: 5\n"},
		{"declare: {type: header, queue: q}\n", []string{"declare.type=fanout"}, "declare: {type: fanout, queue: q}\n"},
		{"declare: {queue: q}\nrate: 1\n", []string{"declare.queue="}, "rate: 1\n"},
	} {
		got, _, err := edit("orders", []byte(c.doc), c.assign)
		if err != nil || string(got) != c.want {
			t.Errorf("%q %v: got %q, %v", c.doc, c.assign, got, err)
		}
	}
}

// drawTopic draws any topic that keeps the rules.
func drawTopic(t *rapid.T) config.Topic {
	durations := func(least, most time.Duration) *rapid.Generator[time.Duration] {
		return rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, "d"))
		})
	}
	name := rapid.StringN(1, -1, 255).Filter(func(s string) bool { return !strings.HasPrefix(s, "amq.") })
	topic := config.Topic{
		Shards:      rapid.IntRange(1, 4096).Draw(t, "shards"),
		Exchange:    name.Draw(t, "exchange"),
		RoutingKey:  name.Draw(t, "routing_key"),
		Headers:     rapid.SampledFrom([]string{"full", "lean"}).Draw(t, "headers"),
		Tick:        durations(10*time.Millisecond, time.Minute).Draw(t, "tick"),
		Workers:     rapid.IntRange(0, 1024).Draw(t, "workers"),
		Batch:       rapid.IntRange(1, 1000).Draw(t, "batch"),
		Window:      rapid.IntRange(1, 100_000).Draw(t, "window"),
		Lease:       durations(time.Second, time.Hour).Draw(t, "lease"),
		MaxAttempts: rapid.IntRange(1, 1000).Draw(t, "max_attempts"),
		History:     time.Duration(rapid.IntRange(0, 168).Draw(t, "history")) * time.Hour,
		Rate:        rapid.IntRange(0, 1_000_000).Draw(t, "rate"),
		Paused:      rapid.Bool().Draw(t, "paused"),
	}
	topic.Backoff.Min = durations(time.Millisecond, 24*time.Hour).Draw(t, "min")
	topic.Backoff.Max = durations(topic.Backoff.Min, 24*time.Hour).Draw(t, "max")
	if rapid.Bool().Draw(t, "declare") {
		topic.Declare = &config.Declare{
			Type:      rapid.SampledFrom([]string{"direct", "topic", "fanout", "headers"}).Draw(t, "type"),
			Queue:     name.Draw(t, "queue"),
			QueueType: rapid.SampledFrom([]string{"quorum", "classic"}).Draw(t, "queue_type"),
		}
		other := name.Filter(func(s string) bool { return s != topic.Exchange && s != topic.Declare.Queue })
		if rapid.Bool().Draw(t, "dead letters") {
			topic.Declare.DeadLetter = other.Draw(t, "dead_letter")
		}
	}
	return topic
}

func assignmentsOf(topic config.Topic) []string {
	var all []string
	for key, text := range config.Effective(topic) {
		all = append(all, key+"="+text)
	}
	return all
}

func TestParseGivesBackWhatEditSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, second := drawTopic(t), drawTopic(t)
		doc, _, err := edit("orders", nil, assignmentsOf(first))
		check.OK(t, err)
		if got, err := config.ParseTopic("orders", doc); err != nil || !reflect.DeepEqual(got, first) {
			t.Fatalf("%s\ngot %+v, %v; want %+v", doc, got, err, first)
		}
		change := assignmentsOf(second)
		if second.Declare == nil {
			change = append(change, "declare=")
		}
		doc, diff, err := edit("orders", doc, change)
		check.OK(t, err)
		if got, err := config.ParseTopic("orders", doc); err != nil || !reflect.DeepEqual(got, second) {
			t.Fatalf("%s\ngot %+v, %v; want %+v", doc, got, err, second)
		}
		if !slices.Equal(diff, config.Diff(first, second)) {
			t.Fatalf("got %v, want %v", diff, config.Diff(first, second))
		}
	})
}
