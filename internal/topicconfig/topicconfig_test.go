package topicconfig

import (
	"reflect"
	"slices"
	"testing"

	"github.com/duefleet/duefleet/internal/config"
)

// TestLeftIntakes: an earlier queue that no intake has now is left, however the exchange
// is used now.
func TestLeftIntakes(t *testing.T) {
	t.Parallel()
	in := func(exchange, queue string) config.Topic {
		return config.Topic{Intake: &config.Intake{Exchange: exchange, Type: "topic", Queue: queue}}
	}
	left := func(exchange, queue string, served bool) LeftIntake {
		return LeftIntake{exchange, "topic", queue, served}
	}
	for what, c := range map[string]struct {
		now  []config.Topic
		want []LeftIntake
	}{
		"removed":          {nil, []LeftIntake{left("x", "q", false)}},
		"as before":        {[]config.Topic{in("x", "q")}, nil},
		"another queue":    {[]config.Topic{in("x", "p")}, []LeftIntake{left("x", "q", true)}},
		"another exchange": {[]config.Topic{in("y", "q")}, nil},
		"both":             {[]config.Topic{in("y", "p")}, []LeftIntake{left("x", "q", false)}},
		"another topic's":  {[]config.Topic{{}, in("y", "q")}, nil},
	} {
		now := map[string]config.Topic{}
		for i, topic := range c.now {
			now[string(rune('a'+i))] = topic
		}
		if got := LeftIntakes([]config.Topic{{}, in("x", "q"), in("x", "q"), in("", "r")}, now); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
	for kind, key := range map[string]string{"topic": "#", "fanout": "", "headers": ""} {
		b, arguments := LeftIntake{"x", kind, "q", false}.Binding()
		if b != (Binding{"x", "q", key}) || (len(arguments) > 0) != (kind == "headers") {
			t.Errorf("%s: %v, %v", kind, b, arguments)
		}
	}
}

// TestSettingsAreWhatADocumentSets: they are as in JSON, and include the readable parts of a
// broken document.
func TestSettingsAreWhatADocumentSets(t *testing.T) {
	t.Parallel()
	got := NewDocumentLine(config.Document{Name: "orders"}, []byte("shards: 7\nlease: 90s\nrate: many\n"+
		"declare: {queue: q}\nbackoff: {min: 5m}\nnone: 1\n")).Settings
	want := map[string]any{"shards": 7, "lease": "1m30s", "declare": map[string]any{"queue": "q"},
		"backoff": map[string]any{"min": "5m"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
