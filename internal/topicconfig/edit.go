package topicconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
)

// Edit is a change of a topic's document by some of its settings.
type Edit struct {
	// Assignments are as config.Draft takes them: shards=8, declare.queue=q.
	Assignments []string
	// Replace begins from an empty document.
	Replace bool
	// Create refuses a topic that has a document.
	Create bool

	// The others are for Documents.Plan.

	// Likely refuses a new topic whose name is similar to another topic's.
	Likely bool
	// Fleet, if not nil, knows the last good document, from which the edit begins if the one
	// in Consul is broken. Then the topic needs a document.
	Fleet Fleet
}

// Of applies the edit to the document found; found has no index if there is no document.
// The error is an ExistsError, or config.Errors with every mistake.
func (e Edit) Of(topic string, found config.Document) (Plan, error) {
	there, before := found.Index > 0, found.Raw
	if there && e.Create {
		return Plan{Found: found}, ExistsError(topic)
	}
	if e.Replace {
		before = nil
	}
	p, err := e.from(topic, before)
	p.Found, p.Fixed = found, found.Err != nil
	p.Same = there && len(p.Changes) == 0 && !e.Replace && !p.Fixed
	return p, err
}

// from applies the edit to the document before.
func (e Edit) from(topic string, before []byte) (p Plan, err error) {
	raw, changes, err := edit(topic, before, e.Assignments)
	if err != nil {
		return p, err
	}
	return Plan{After: config.ParseDocument(topic, raw, 0), Changes: changes}, nil
}

// Assignments returns the completions of an assignment such as declare.queue=. Before the
// =, they are the keys in order. After the =, they are the words that the key accepts. They
// leave out the keys of assignments that are there already.
func Assignments(begun string, there []string) (all []string) {
	key, _, valued := strings.Cut(begun, "=")
	for _, k := range config.TopicKeys() {
		switch {
		case slices.ContainsFunc(there, func(a string) bool { return strings.HasPrefix(a, k.Name+"=") }):
		case !valued && strings.HasPrefix(k.Name, key):
			all = append(all, k.Name+"=")
		case valued && k.Name == key:
			for _, word := range k.Words {
				all = append(all, key+"="+word)
			}
		}
	}
	return all
}

// ExistsError says that the topic has a document already.
type ExistsError string

func (e ExistsError) Error() string {
	const text = "topic %s has a document already; `scanner topic set %s key=value...` changes it"
	return fmt.Sprintf(text, string(e), string(e))
}
