package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

func TestDiffOfTheSameTopicIsEmpty(t *testing.T) {
	t.Parallel()
	a := DefaultTopic("orders")
	if got := Diff(a, DefaultTopic("orders")); got != nil {
		t.Errorf("got %v", got)
	}
	if a.Declare != nil {
		t.Error("the topic was changed")
	}
}

func TestDurationsAreShownShortAndWhole(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 5 * time.Minute: "5m", 90 * time.Second: "1m30s", time.Hour: "1h", 10 * time.Minute: "10m",
		100 * time.Minute: "1h40m", time.Hour + time.Second: "1h0m1s", 10 * time.Hour: "10h",
		1500 * time.Microsecond: "1.5ms", 0: "0s",
	} {
		if got := show(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

// TestACompleteDocumentIsTheSameTopic: it has every key, except the end and the reason of a
// pause if they are empty. It reads as the same topic, even with a text that YAML could
// read as something else.
func TestACompleteDocumentIsTheSameTopic(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		"{}", "exchange: ''\nrouting_key: 'true'\n", "shards: 7\npaused: true\nbackoff: {max: 90m}\n",
		"paused: true\npaused_reason: 'on: yes'\npaused_until: 2026-12-01T10:00:00Z\n",
		"exchange: \"a: b # c\"\ndeclare: {queue: q}\nheaders: lean\n",
		"declare: {queue: q, dead_letter: d}\n", "intake: {}\n", "intake: {exchange: in, type: fanout, headers: true}\n",
	} {
		want, err := ParseTopic("orders", []byte(doc))
		check.OK(t, err)
		complete := Complete(want)
		got, err := ParseTopic("orders", complete)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %q: got %+v, %v", doc, complete, got, err)
		}
		for _, f := range topicFields() {
			_, there := readTopic("orders", complete, &errorList{}).values[f.key]
			value, wanted := f.of(want)
			if wanted = wanted && (value != "" || f.key == "exchange" || f.key == "routing_key"); there != wanted {
				t.Errorf("%q is %q: has %s is %v, want %v", doc, complete, f.key, there, wanted)
			}
		}
	}
}
