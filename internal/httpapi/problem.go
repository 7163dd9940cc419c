package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// Done says whether a request that failed took effect.
type Done string

// The values of Problem.Done.
const (
	// No: the request did nothing.
	No Done = "no"
	// Maybe: the request may have taken effect, or may do so within three seconds.
	Maybe Done = "maybe"
)

// Problem is the body of an answer with an error, as application/problem+json (RFC 9457).
// The JSON names are an interface.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is a word for programs.
	Code string `json:"code"`
	Done Done   `json:"done"`
	// Retry reports that the same request may succeed later, and does no harm.
	Retry bool `json:"retry"`
	// RetryAfter is after how many seconds to try again, as the header Retry-After says; 0: unknown.
	RetryAfter int `json:"retry_after,omitempty"`
	// Field, Rule and Got describe a value that broke a rule; see task.RuleError.
	Field string `json:"field,omitempty"`
	Rule  string `json:"rule,omitempty"`
	Got   string `json:"got,omitempty"`
	// Due and DueMillis are the due time of a task that too few replicas have.
	Due       string `json:"due,omitempty"`
	DueMillis int64  `json:"due_ms,omitempty"`

	allow string // 405: for Allow
	cause error  // for the log
}

// Error returns the problem as text.
func (p *Problem) Error() string { return p.Detail }

func problem(status int, code, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Done: No}
}

// later makes a problem one that may be over after some seconds.
func (p *Problem) later(seconds int) *Problem {
	p.Retry, p.RetryAfter = true, seconds
	return p
}

// kinds are the errors of the library and their answers. The text of these errors goes to
// the client; what they wrap may name servers, and goes to the log.
func kinds() []struct {
	err    error
	status int
	code   string
	done   Done
	after  int
} {
	return []struct {
		err    error
		status int
		code   string
		done   Done
		after  int
	}{
		{task.ErrUncertain, http.StatusGatewayTimeout, "uncertain", Maybe, 3},
		{task.ErrReplicas, http.StatusGatewayTimeout, "replicas", Maybe, 3},
		{task.ErrUnavailable, http.StatusServiceUnavailable, "unavailable", No, 1},
		{task.ErrRedisFull, http.StatusServiceUnavailable, "redis_full", No, 10},
		{task.ErrUnknownTopic, http.StatusNotFound, "unknown_topic", No, 0},
		{task.ErrNotFound, http.StatusNotFound, "not_found", No, 0},
		{task.ErrExists, http.StatusPreconditionFailed, "exists", No, 0},
	}
}

// problemOf returns the answer to an error.
func problemOf(err error) *Problem {
	var p *Problem
	var rule *task.RuleError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &rule):
		status := http.StatusUnprocessableEntity
		if rule.Field == "payload" {
			status = http.StatusRequestEntityTooLarge
		}
		p = problem(status, "invalid", rule.Error())
		p.Field, p.Rule, p.Got = rule.Field, rule.Rule, rule.Got
		return p
	}
	for _, kind := range kinds() {
		if errors.Is(err, kind.err) {
			p = problem(kind.status, kind.code, kind.err.Error())
			p.Done, p.cause = kind.done, err
			if errors.Is(err, producer.ErrRepeated) {
				p.Done, p.Detail = Maybe, p.Detail+"; "+producer.ErrRepeated.Error()
			}
			if kind.after > 0 {
				p = p.later(kind.after)
			}
			return p
		}
	}
	if denied(err) {
		p = problem(http.StatusServiceUnavailable, "denied", "the server's user in Redis lacks a right; its log names it")
		p.Done, p.cause = Maybe, err
		return p.later(10)
	}
	p = problem(http.StatusBadGateway, "redis", "Redis refused the request; the server's log has the reason")
	p.Done, p.cause = Maybe, err
	return p.later(3)
}

// denied reports whether Redis refused a call because of its user.
func denied(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal) && slices.ContainsFunc([]string{"NOPERM", "NOAUTH", "WRONGPASS"},
		func(word string) bool { return strings.HasPrefix(refusal.Error(), word) })
}

func badRequest(field, rule string) *Problem {
	p := problem(http.StatusBadRequest, "bad_request", field+": "+rule)
	p.Field, p.Rule = field, rule
	return p
}

// sized adds the size that a value has, for a rule about a size.
func (p *Problem) sized(got string) *Problem {
	p.Got, p.Detail = got, p.Detail+"; got "+got
	return p
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.allow != "" {
		w.Header().Set("Allow", p.allow)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="duefleet"`)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}
