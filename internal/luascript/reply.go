package luascript

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Reply is the answer to one call. A reply of another type than the one asked for is an
// error that names the script.
type Reply struct {
	script string
	value  any
	err    error
}

// Err returns the error of the call. With a *ReplicasError there is an answer too.
func (r Reply) Err() error { return r.err }

// Int returns a reply that is an integer.
func (r Reply) Int() (int64, error) {
	l := r.only()
	return l.Int(), l.Err()
}

// Text returns a reply that is a text.
func (r Reply) Text() (string, error) {
	l := r.only()
	return l.Text(), l.Err()
}

// only returns a list of the reply itself.
func (r Reply) only() *Values { return &Values{script: r.script, values: []any{r.value}, err: r.err} }

// Values returns the reader of a reply that is a list. The error of a call is the reader's,
// except a *ReplicasError: then the list is read, and the caller asks Err.
func (r Reply) Values() *Values {
	l := &Values{script: r.script, err: r.err}
	if r.err != nil && !errors.Is(r.err, task.ErrReplicas) {
		return l
	}
	values, ok := r.value.([]any)
	if l.values, l.err = values, nil; !ok {
		l.err = fmt.Errorf("script %s answered %s, not a list", r.script, kind(r.value))
	}
	return l
}

// Values reads the elements of a reply one after the other. After the first element of
// another type than the one asked for, it returns zero values; Err says why.
type Values struct {
	script string
	values []any
	at     int // of the next element
	err    error
}

// Err returns the first error.
func (l *Values) Err() error { return l.err }

// Left returns how many elements were not read, 0 after an error.
func (l *Values) Left() int {
	if l.err != nil {
		return 0
	}
	return len(l.values) - l.at
}

// Text returns the next element, which must be a text.
func (l *Values) Text() string {
	v, _ := l.next("a text", false).(string)
	return v
}

// TextIf returns the next element if it is a text; it may also be nil.
func (l *Values) TextIf() (text string, there bool) {
	text, there = l.next("a text", true).(string)
	return text, there
}

// Int returns the next element, which must be an integer.
func (l *Values) Int() int64 {
	v, _ := l.next("an integer", false).(int64)
	return v
}

// next returns the next element, which must be of the wanted kind, or nil if that is
// allowed.
func (l *Values) next(wanted string, orNil bool) any {
	if l.err != nil {
		return nil
	}
	if l.at == len(l.values) {
		l.err = fmt.Errorf("script %s answered %d elements; %s is missing", l.script, l.at, wanted)
		return nil
	}
	v := l.values[l.at]
	l.at++
	if is := kind(v); is != wanted && (v != nil || !orNil) {
		l.err = fmt.Errorf("script %s answered %s as element %d, not %s", l.script, is, l.at, wanted)
		return nil
	}
	return v
}

func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return "a text"
	case int64:
		return "an integer"
	case []any:
		return "a list"
	case redis.Error:
		return "the error " + v.Error()
	}
	return fmt.Sprintf("a %T", v)
}
