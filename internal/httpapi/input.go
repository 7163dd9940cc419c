package httpapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// headerPrefix begins the names of HTTP headers that become headers of the message. The
// rest of the name, in lower case, is the key: names of HTTP headers have no case.
const headerPrefix = "X-Duefleet-Header-"

// The headers with the conditions of a PUT.
const (
	ifNoneMatch = "If-None-Match"
	ifMatch     = "If-Match"
)

func conditions() []string { return []string{ifNoneMatch, ifMatch} }

// traceHeaders are headers of the W3C Trace Context. They become headers of the message
// under the same names, so that the consumer's work belongs to the client's trace.
func traceHeaders() []string { return []string{"traceparent", "tracestate"} }

// task reads what a request asks to schedule, except for its payload.
func (r *request) task() (wanted producer.Request, err error) {
	wanted = producer.Request{Topic: r.topic, ID: r.id, ContentType: r.Header.Get("Content-Type")}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return wanted, broken(http.StatusUnsupportedMediaType, "encoding", "Content-Encoding",
			"must not be given; the payload is delivered byte for byte")
	}
	query, err := r.query()
	if err != nil {
		return wanted, err
	}
	if group, given := query["group"]; given && group == "" {
		return wanted, badRequest("group", "must not be empty").sized("0 bytes")
	}
	wanted.Group = query["group"]
	if wanted.Recurrence, err = rule(query); err != nil {
		return wanted, err
	}
	if wanted.When, err = first(query, wanted.Recurrence); err != nil {
		return wanted, err
	}
	if wanted.Options, err = options(query); err != nil {
		return wanted, err
	}
	if wanted.IfAbsent, err = r.condition(ifNoneMatch); err != nil {
		return wanted, err
	}
	if wanted.IfPresent, err = r.condition(ifMatch); err != nil {
		return wanted, err
	}
	wanted.Headers, err = r.headers()
	return wanted, err
}

// bare reads a request that has no body, and its due time if the verb has one.
func (r *request) bare() (when producer.When, err error) {
	if r.ContentLength != 0 {
		size := "an unknown size"
		if r.ContentLength > 0 {
			size = fmt.Sprintf("%d bytes", r.ContentLength)
		}
		return when, badRequest("body", fmt.Sprintf("must be empty for %s", r.Method)).sized(size)
	}
	for _, name := range conditions() {
		if r.verb != "get" && r.Header.Get(name) != "" {
			return when, badRequest(name, "is for PUT alone")
		}
	}
	query, err := r.query()
	if err != nil || r.verb != "reschedule" {
		return when, err
	}
	return due(query)
}

// parameters returns the names that a verb takes in the query.
func parameters(verb string) []string {
	switch verb {
	case "schedule":
		return []string{"in", "at", "group", "routing_key", "priority", "expiration", "correlation_id", "reply_to",
			"every", "cron", "zone", "until", "runs", "each"}
	case "reschedule":
		return []string{"in", "at"}
	}
	return nil
}

// headerParameters returns the headers that a verb takes. Headers of every request, and headers
// that begin with headerPrefix, aren't among them.
func headerParameters(verb string) []string {
	if verb == "schedule" {
		return append(conditions(), traceHeaders()...)
	}
	return nil
}

// query returns the parameters of the query. It refuses unknown and repeated ones: to
// ignore them would mislead the client.
func (r *request) query() (map[string]string, error) {
	known := parameters(r.verb)
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("query", "must have valid escapes, and & between parameters")
	}
	query := make(map[string]string, len(all))
	for name, values := range all {
		if !slices.Contains(known, name) {
			rule := fmt.Sprintf("unknown parameter; %s takes %s", r.Method, strings.Join(known, ", "))
			if len(known) == 0 {
				rule = fmt.Sprintf("unknown parameter; %s takes none", r.Method)
			}
			return nil, badRequest(strconv.QuoteToASCII(ndjson.Clip(name)), rule)
		}
		if len(values) > 1 {
			return nil, badRequest(name, "given twice").sized(fmt.Sprintf("%d values", len(values)))
		}
		query[name] = values[0]
	}
	return query, nil
}

// first returns the due time of a task to schedule. A recurring task may have none: its first
// run is then the first time of its rule.
func first(query map[string]string, rule *task.Recurrence) (when producer.When, err error) {
	_, hasIn := query["in"]
	_, hasAt := query["at"]
	if rule != nil && !hasIn && !hasAt {
		return producer.When{}, nil
	}
	return due(query)
}

// rule reads the rule of a recurring task, nil without one. The library checks the values.
func rule(query map[string]string) (*task.Recurrence, error) {
	_, hasEvery := query["every"]
	cron, hasCron := query["cron"]
	if !hasEvery && !hasCron {
		for _, name := range []string{"zone", "until", "runs", "each"} {
			if _, given := query[name]; given {
				return nil, badRequest(name, "needs every or cron")
			}
		}
		return nil, nil
	}
	r := task.Recurrence{Cron: cron, Zone: query["zone"]}
	if text, given := query["runs"]; given {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, badRequest("runs", fmt.Sprintf("must be 0 to %d", math.MaxUint32))
		}
		r.Runs = int(n) //nolint:gosec // it has 32 bits
	}
	switch text, given := query["each"]; {
	case text == "true":
		r.Each = true
	case given && text != "false":
		return nil, badRequest("each", "must be true or false")
	}
	parsed, err := ndjson.ParseRule(r, query)
	var wrong *ndjson.FieldError
	if errors.As(err, &wrong) {
		return nil, badRequest(wrong.Field, wrong.Err.Error())
	}
	return parsed, err
}

// due returns the due time. Exactly one of its two parameters must be given.
func due(query map[string]string) (when producer.When, err error) {
	in, hasIn := query["in"]
	at, hasAt := query["at"]
	if hasIn == hasAt {
		return when, badRequest("in, at", "exactly one of them is needed, as in ?in=30m")
	}
	name, value := "in", in
	if hasAt {
		name, value = "at", at
	}
	if when, err = duetime.When(name, value); err == nil {
		return when, nil
	}
	if errors.Is(err, task.ErrInvalid) {
		return when, err
	}
	if name == "at" && strings.Contains(value, " ") {
		return when, badRequest(name, "has a blank; a + in a query is written %2B")
	}
	return when, badRequest(name, err.Error())
}

// options reads the options of the message. The library checks their ranges.
func options(query map[string]string) (o task.Options, err error) {
	o.RoutingKey, o.CorrelationID, o.ReplyTo = query["routing_key"], query["correlation_id"], query["reply_to"]
	if text, given := query["priority"]; given {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return o, badRequest("priority", "must be 0 to 255")
		}
		o.Priority = uint8(n)
	}
	if text, given := query["expiration"]; given {
		if o.Expiration, err = duetime.Span(text); err == nil && o.Expiration == 0 {
			err = errors.New("must be 1ms or more")
		}
		if err != nil {
			return o, badRequest("expiration", err.Error())
		}
	}
	return o, nil
}

// condition reports whether the request has a condition, which must be *.
func (r *request) condition(name string) (bool, error) {
	values := r.Header.Values(name)
	if len(values) == 0 {
		return false, nil
	}
	if len(values) > 1 || values[0] != "*" {
		return false, badRequest(name, "must be *; tasks have no entity tags")
	}
	return true, nil
}

// headers returns the headers of the message, nil without any.
func (r *request) headers() (map[string]string, error) {
	var headers map[string]string
	add := func(key, name string, values []string) error {
		if len(values) > 1 {
			return badRequest(name, "given twice").sized(fmt.Sprintf("%d values", len(values)))
		}
		if !utf8.ValidString(values[0]) {
			return badRequest(name, "must be valid UTF-8")
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[key] = values[0]
		return nil
	}
	for name, values := range r.Header {
		key, found := strings.CutPrefix(name, headerPrefix)
		switch {
		case !found && strings.HasPrefix(name, "X-Duefleet-"):
			return nil, badRequest(name, "unknown header; headers of the message begin with "+headerPrefix)
		case found:
			if err := add(strings.ToLower(key), name, values); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range traceHeaders() {
		if values := r.Header.Values(key); len(values) > 0 && headers[key] == "" {
			if err := add(key, key, values); err != nil {
				return nil, err
			}
		}
	}
	return headers, nil
}
