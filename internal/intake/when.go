package intake

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// The headers that say when a task is due. A message has at most one of them; without one
// it is due at once.
const (
	// HeaderDelay is the delay in ms, as the delayed-message exchange reads it.
	HeaderDelay = "x-delay"
	// HeaderDue is the due time in Unix ms.
	HeaderDue = task.HeaderDue
	// HeaderIn is a duration such as "30m" or "1d12h".
	HeaderIn = task.ReservedHeaderPrefix + "in"
)

// due is when a message asks to be delivered.
type due struct {
	when task.When
	// given is false if the message has none of the headers.
	given bool
	// delay is a delay above 0 from HeaderDelay, in ms. On delivery its sign is reversed.
	delay int64
}

// dueOf reads the due time from a message's headers. The scanner's clock isn't asked:
// relative times go to Redis as they are.
func dueOf(headers map[string]any) (due, error) {
	names := dueNames(headers)
	switch {
	case len(names) == 0:
		return due{when: task.Now()}, nil
	case len(names) > 1:
		return due{}, fmt.Errorf("headers %s: must be one of them", strings.Join(names, " and "))
	}
	d, err := readDue(names[0], headers[names[0]])
	if err != nil {
		return due{}, fmt.Errorf("header %s: %w", names[0], err)
	}
	d.given = true
	return d, nil
}

// dueNames returns the headers that say when a message is due. A message that was delivered
// with duefleet's headers has the due time and the reversed delay of that delivery. There, a
// delay counts only above 0, and the due time only if nothing else does.
func dueNames(headers map[string]any) (names []string) {
	_, delivered := headers[task.HeaderScheduled]
	for _, name := range []string{HeaderDelay, HeaderIn, HeaderDue} {
		value, there := headers[name]
		old := delivered && (name == HeaderDelay && reversed(value) || name == HeaderDue && len(names) > 0)
		if there && !old {
			names = append(names, name)
		}
	}
	return names
}

// reversed reports whether a delay is one that was delivered.
func reversed(delay any) bool {
	ms, err := millis(delay)
	return err == nil && ms <= 0
}

func readDue(name string, value any) (due, error) {
	switch name {
	case HeaderDelay:
		return delay(value)
	case HeaderIn:
		return span(value)
	}
	return instant(value)
}

// delay reads HeaderDelay as the delayed-message exchange does: integers of every width,
// floats without their fraction, and decimal text. Other types are no delay, so the
// message is due at once and keeps the header.
func delay(value any) (due, error) {
	ms, err := millis(value)
	if err != nil {
		return due{}, err
	}
	if ms > task.MaxAhead.Milliseconds() {
		return due{}, tooFar()
	}
	if ms <= 0 {
		return due{when: task.Now()}, nil
	}
	return due{when: task.In(time.Duration(ms) * time.Millisecond), delay: ms}, nil
}

func tooFar() error {
	return &task.RuleError{Field: "due", Rule: fmt.Sprintf("must be at most %d years ahead", task.MaxYearsAhead),
		Got: "a later time"}
}

func millis(value any) (int64, error) {
	if n, ok := integer(value); ok {
		return n, nil
	}
	switch v := value.(type) {
	case float32:
		return truncated(float64(v))
	case float64:
		return truncated(v)
	case string:
		return decimal(v)
	case []byte:
		return decimal(string(v))
	}
	return 0, nil
}

func integer(value any) (int64, bool) {
	switch v := value.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// truncated cuts the fraction off. A number beyond an int64 becomes the largest or the
// smallest one.
func truncated(f float64) (int64, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return 0, fmt.Errorf("must be a number of milliseconds; got %v", f)
	case f >= math.MaxInt64:
		return math.MaxInt64, nil
	case f <= math.MinInt64:
		return math.MinInt64, nil
	}
	return int64(f), nil
}

// decimal parses digits with an optional sign.
func decimal(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == text {
		digits = strings.TrimPrefix(text, "+")
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("must be a whole number of milliseconds; got text of %d bytes", len(text))
	}
	n, _ := strconv.ParseInt(text, 10, 64) // beyond an int64 it is the largest or the smallest one
	return n, nil
}

func span(value any) (due, error) {
	text, ok := text(value)
	if !ok {
		return due{}, fmt.Errorf("must be text; %s", duetime.SpanForm)
	}
	when, err := duetime.When("in", text)
	if err == nil {
		err = when.Check()
	}
	return due{when: when}, err
}

// instant reads HeaderDue: Unix ms as a number or as text, RFC 3339, or an AMQP timestamp.
// Whether it is too far ahead depends on Redis's clock; see checkFar.
func instant(value any) (due, error) {
	at, err := time.Time{}, error(nil)
	if n, ok := integer(value); ok {
		at, err = duetime.At(strconv.FormatInt(n, 10))
	} else if t, ok := value.(time.Time); ok {
		at = t
	} else if text, ok := text(value); ok {
		at, err = duetime.At(text)
	} else {
		err = fmt.Errorf("must be Unix milliseconds; got a value of another type")
	}
	if err != nil {
		return due{}, err
	}
	if at.Unix() > mostMillis/1000 {
		return due{}, tooFar() // also beyond what UnixMilli can return
	}
	when := task.At(at)
	return due{when: when}, when.Check()
}

// mostMillis is the latest due time that Redis's scripts take.
const mostMillis = 1<<48 - 1

// far reports whether an absolute due time is too far ahead, seen from Redis's now in ms.
func (d due) far(now int64) bool {
	at, absolute := d.when.Instant()
	return absolute && at.UnixMilli() > now+task.MaxAhead.Milliseconds()
}

func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
