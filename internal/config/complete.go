package config

import (
	"strings"
	"time"
)

// Complete returns a topic as a document that has every key, also those that are at
// their default, but none of a section that the topic lacks.
func Complete(t Topic) []byte {
	s := newSettings()
	for _, f := range topicFields() {
		if value, there := f.of(t); there {
			s.values[f.key] = given{value: value}
		}
	}
	return render(s)
}

// Settings returns what a topic's document sets, and no defaults, as JSON has it:
// sections are objects, and durations texts. What of a broken one can't be read is
// left out.
func Settings(name string, doc []byte) map[string]any {
	all := map[string]any{}
	for key, value := range readTopic(name, doc, &errorList{}).plain() {
		if d, ok := value.(time.Duration); ok {
			value = showDuration(d)
		}
		section, leaf, nested := strings.Cut(key, ".")
		if !nested {
			all[key] = value
			continue
		}
		under, ok := all[section].(map[string]any)
		if !ok {
			under = map[string]any{}
			all[section] = under
		}
		under[leaf] = value
	}
	return all
}
