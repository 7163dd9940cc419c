package config

import (
	"reflect"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

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

// TestSettingsAreWhatADocumentSets: they are as in JSON, and include the readable parts of a
// broken document.
func TestSettingsAreWhatADocumentSets(t *testing.T) {
	t.Parallel()
	got := Settings("orders", []byte("shards: 7\nlease: 90s\nrate: many\ndeclare: {queue: q}\nbackoff: {min: "+
		"5m}\nnone: 1\n"))
	want := map[string]any{"shards": 7, "lease": "1m30s", "declare": map[string]any{"queue": "q"},
		"backoff": map[string]any{"min": "5m"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
