package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/task"
)

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
