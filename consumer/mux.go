package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/task"
)

// Mux chooses a handler by a task's topic. Its method Handler is a value for
// Config.Handler:
//
//	consumer.Config{Handler: consumer.Mux{Topics: map[string]consumer.Handler{"orders": remind}}.Handler}
//
// Don't change Topics while a consumer runs.
type Mux struct {
	// Topics maps the exact name of a topic to its handler.
	Topics map[string]Handler
	// Fallback handles every other topic. Defaults to nil: then a task of another topic
	// is parked, with a reason that names the topics that have handlers.
	Fallback Handler
}

// Handler calls the handler of the task's topic. A nil handler counts as none.
func (m Mux) Handler(ctx context.Context, d task.Delivery) error {
	if handle := m.Topics[d.Topic]; handle != nil {
		return handle(ctx, d)
	}
	if m.Fallback != nil {
		return m.Fallback(ctx, d)
	}
	return Park(fmt.Errorf("no handler for topic %s: consumer.Mux has %s, and no Fallback; "+
		"add a handler, then replay the task", d.Topic, m.names()))
}

// names lists up to three topics with handlers, and counts the others.
func (m Mux) names() string {
	const most = 3
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.Topics)) {
		if m.Topics[name] != nil {
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}
