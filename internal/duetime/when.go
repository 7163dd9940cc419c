package duetime

import (
	"errors"
	"strings"

	"github.com/duefleet/duefleet/task"
)

// When parses a due time for the field "in" or "at". In takes what Span does, except 0
// without a unit, which is probably a variable that was never set: 0s is now. When leaves
// the rules of task.When.Check to its caller.
func When(field, text string) (task.When, error) {
	if field == "at" {
		at, err := At(text)
		return task.At(at), err
	}
	d, err := Span(text)
	switch {
	case err != nil:
		return task.When{}, err
	case strings.TrimLeft(text, "+-") == "0":
		return task.When{}, errors.New(unitForm + "; 0s is now")
	case d == 0:
		return task.Now(), nil
	}
	return task.In(d), nil
}
