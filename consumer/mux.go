package consumer

import (
	"context"
	"encoding/json"
	"errors"
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

// JSON returns a Handler that decodes the payload into a T with encoding/json, which
// ignores fields that T lacks. d.Payload still has the bytes. JSON doesn't check the
// content type.
//
// A task whose payload can't be decoded is parked at once, because another attempt would
// fail in the same way. The reason has the position and the types, and nothing of the
// payload. If handle is nil, JSON returns nil, which New refuses.
func JSON[T any](handle func(ctx context.Context, d task.Delivery, v T) error) Handler {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, d task.Delivery) error {
		var v T
		if err := json.Unmarshal(d.Payload, &v); err != nil {
			return Park(undecoded[T](len(d.Payload), err))
		}
		return handle(ctx, d, v)
	}
}

// undecoded returns the reason why a payload of size bytes can't be decoded into a T. It
// leaves out the messages of encoding/json and of UnmarshalJSON, because they may quote
// the payload.
func undecoded[T any](size int, err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	what := fmt.Sprintf("payload of %d bytes", size)
	switch {
	case size == 0:
		return errors.New("payload is empty, want JSON")
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: not JSON at byte %d", what, syntax.Offset)
	case errors.As(err, &wrong):
		at := "the value"
		if wrong.Field != "" {
			at = "field " + wrong.Field
		}
		return fmt.Errorf("%s: %s doesn't fit type %s, at byte %d", what, at, wrong.Type, wrong.Offset)
	}
	return fmt.Errorf("%s: can't be decoded into %T (%T)", what, *new(T), err)
}
