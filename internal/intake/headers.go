package intake

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/didyoumean"
	"github.com/duefleet/duefleet/task"
)

// own reports whether duefleet itself sets a header. It comes back with a message that is
// dead-lettered into the intake or published again.
func own(header string) bool {
	switch header {
	case task.HeaderTopic, task.HeaderFirstDue, task.HeaderScheduled, task.HeaderAttempt, task.HeaderRedelivered,
		task.HeaderRoutingKey, task.HeaderID, task.HeaderUserID,
		HeaderRefused, HeaderRefusedClass, HeaderRefusedExchange, HeaderExpiration, HeaderLeftOut,
		HeaderHops, HeaderTaken,
		amqpframe.HeaderUnreadable, amqpframe.HeaderTable:
		return true
	}
	return false
}

// asks reports whether a header that begins with task.ReservedHeaderPrefix is a client's.
func asks(header string) bool {
	return header == HeaderDue || header == HeaderIn || header == HeaderVerb || header == HeaderPriority ||
		header == task.HeaderGroup ||
		slices.Contains(ruleHeaders(), header)
}

// plain returns a header's name in lower case, with hyphens in place of underscores.
func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// misspelt reports whether a header's plain name is HeaderDelay or begins with
// task.ReservedHeaderPrefix, and duefleet doesn't know the name itself.
func misspelt(name string) bool {
	if p := plain(name); p == HeaderDelay || amqpmsg.Reserved(p) {
		return name != HeaderDelay && !own(name) && !asks(name)
	}
	return false
}

// checkNames returns an error for a header that is misspelt. A misspelt due time would mean at
// once.
func checkNames(headers map[string]any) error {
	var strange []string
	for name := range headers {
		if misspelt(name) {
			strange = append(strange, name)
		}
	}
	if len(strange) == 0 {
		return nil
	}
	name := slices.Min(strange)
	return fmt.Errorf("header %.100q: must be %s, %s, %s, %s, %s, %s or of a rule: %s%s", name, HeaderDelay, HeaderIn,
		HeaderDue, HeaderVerb, HeaderPriority, task.HeaderGroup, strings.Join(ruleHeaders(), ", "),
		nearest(plain(name)))
}

// nearest asks whether the client meant a header that it can set. It returns "" if none is
// like the name.
func nearest(name string) string {
	const likeDelay = task.ReservedHeaderPrefix + "delay"
	names := append(ruleHeaders(), HeaderDue, HeaderIn, HeaderVerb, HeaderPriority, task.HeaderGroup, likeDelay)
	if name != HeaderDelay && !slices.Contains(names, name) {
		name = didyoumean.Of(name, names)
	}
	switch name {
	case "":
		return ""
	case likeDelay:
		name = HeaderDelay
	}
	return "; did you mean " + name + "?"
}

// restoreExpiration gives a message that was refused and published again its expiration,
// unless it has one. The user-id of a refused message stays a header: any publisher can set
// it, and RabbitMQ checks only the property.
func restoreExpiration(m *amqpmsg.Message) error {
	value, there := m.Headers[HeaderExpiration]
	if !there || m.Properties.Expiration != "" {
		return nil
	}
	text, _ := text(value)
	if !amqpmsg.IsExpiration(text) {
		return fmt.Errorf("header %s: %s", HeaderExpiration, amqpmsg.ExpirationRule)
	}
	m.Properties.Expiration = text
	return nil
}

// deliveredHeaders removes what was meant for duefleet and reverses the sign of a delay.
func (d due) deliveredHeaders(headers map[string]any) {
	for name := range headers {
		if amqpmsg.Reserved(name) || brokerHeader(name) {
			delete(headers, name)
		}
	}
	if d.delay > 0 {
		headers[HeaderDelay] = negative(d.delay, headers[HeaderDelay])
	}
}

// negative returns -ms in the signed integer type in which ms was published, or in the next
// wider one if ms was unsigned. Other types become an int32 if ms fits, because some clients
// read each int64 as unsigned.
func negative(ms int64, published any) any {
	switch published.(type) {
	case int8:
		return int8(-ms) //nolint:gosec // ms was an int8 above 0, as in the next case
	case int16, uint8:
		return int16(-ms) //nolint:gosec // see above
	case int64:
		return -ms
	}
	if ms <= math.MaxInt32 {
		return int32(-ms)
	}
	return -ms
}

// brokerHeader reports whether a quorum queue adds a header to a message that it delivers
// again. The client didn't publish it.
func brokerHeader(name string) bool { return name == "x-delivery-count" || name == "x-acquired-count" }
