package consul

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/consul/api"
)

// Error is an error of Consul, or of the way to it.
type Error struct {
	// Operation that failed, and its object.
	Operation string
	// Advice is what to do about it, to be written behind; empty if there is
	// none.
	Advice string
	// Err is the cause.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v%s", e.Operation, e.Err, e.Advice) }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// errUnreadable is what Consul doesn't call an error: it leaves out what the
// token may not read.
var errUnreadable = errors.New("Permission denied: the token may not read all of") //nolint:staticcheck // Consul's words for it, which advice goes by

// errDenied is what Consul refuses in a transaction.
var errDenied = errors.New("transaction refused")

// Forbidden reports whether Consul refused what the token may not do.
func Forbidden(err error) bool {
	var status api.StatusError
	return errors.Is(err, errUnreadable) || errors.Is(err, errDenied) || errors.As(err, &status) && status.Code == http.StatusForbidden
}

func (c *Client) fail(err error, operation string, object ...any) error {
	e := &Error{Operation: fmt.Sprintf(operation, object...), Err: err}
	if c.advice != nil {
		e.Advice = c.advice(e.Error())
	}
	return e
}
