package config

import (
	"slices"
	"strings"
	"time"
)

// Complete returns a topic as a document with all keys, even those with default values.
// There are two exceptions. It omits the keys of a section that the topic lacks. It also
// omits a text that is empty like its default, because scanners of an older version may
// not know its key.
func Complete(t Topic) []byte {
	s := newSettings()
	defaults := DefaultTopic("orders")
	defaults.Declare, defaults.Intake = &Declare{}, newIntake("orders")
	setDefaults(defaults.Declare)
	for _, f := range topicFields() {
		byDefault, _ := f.of(defaults)
		if value, there := f.of(t); there && (value != "" || byDefault != "") {
			s.values[f.key] = given{value: value}
		}
	}
	return render(s)
}

// Assignments returns the completions of an assignment such as declare.queue=. Before the
// =, they are the keys in order. After the =, they are the words that the key accepts. They
// leave out the keys of assignments that are there already.
func Assignments(begun string, there []string) (all []string) {
	key, _, valued := strings.Cut(begun, "=")
	for _, f := range topicFields() {
		switch {
		case slices.ContainsFunc(there, func(a string) bool { return strings.HasPrefix(a, f.key+"=") }):
		case !valued && strings.HasPrefix(f.key, key):
			all = append(all, f.key+"=")
		case valued && f.key == key:
			for _, word := range f.words {
				all = append(all, key+"="+word)
			}
		}
	}
	return all
}

// Settings returns what a topic's document sets, without defaults, as in JSON: sections
// are objects, and durations are texts. It omits the unreadable parts of a broken
// document.
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
