package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/task"
)

// JSON is a Handler that decodes the payload into a T, as encoding/json does: fields that T
// lacks are ignored. The payload's bytes are still in d.Payload. The content type isn't
// looked at.
//
// A task whose payload can't be decoded is parked at once, since another attempt would
// meet the same bytes. The reason has the place and the types, and nothing of the payload.
// A nil handle makes a nil Handler, which New refuses.
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

// undecoded says why a payload of some bytes isn't a T. The words of encoding/json, and of a
// type's own UnmarshalJSON, may quote the payload: they are left out.
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
