package topicdocs

import (
	"fmt"

	"github.com/duefleet/duefleet/internal/config"
)

// Edit is a change of a topic's document by some of its settings.
type Edit struct {
	// Assignments are as config.Edit takes them: shards=8, declare.queue=q.
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

// Edited is a document after an edit. It was checked and isn't written yet.
type Edited struct {
	// Raw is the new document, and Changes are the settings that differ.
	Raw     []byte
	Changes []config.Change
	// Fixed: the document had mistakes, and the edit fixes them, maybe without a change
	// of a setting.
	Fixed bool
	// Same: there is nothing to write.
	Same bool
}

// Of applies the edit to the document found; found has no index if there is no document.
// The error is an ExistsError, or config.Errors with every mistake.
func (e Edit) Of(topic string, found config.Document) (Edited, error) {
	there, before := found.Index > 0, found.Raw
	if there && e.Create {
		return Edited{}, ExistsError(topic)
	}
	if e.Replace {
		before = nil
	}
	raw, changes, err := config.Edit(topic, before, e.Assignments)
	if err != nil {
		return Edited{}, err
	}
	fixed := found.Err != nil
	same := there && len(changes) == 0 && !e.Replace && !fixed
	return Edited{Raw: raw, Changes: changes, Fixed: fixed, Same: same}, nil
}

// ExistsError says that the topic has a document already.
type ExistsError string

func (e ExistsError) Error() string {
	const text = "topic %s has a document already; `scanner topic set %s key=value...` changes it"
	return fmt.Sprintf(text, string(e), string(e))
}
