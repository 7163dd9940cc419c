package consul

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/consul/api"
)

// Error is an error from Consul or from the connection to it.
type Error struct {
	// Operation names the failed operation and its object.
	Operation string
	// Advice says what to do about the error, as in "; check consul.token". It is "" if
	// there is none.
	Advice string
	// Err is the cause.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v%s", e.Operation, e.Err, e.Advice) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errUnreadable means that Consul left out keys that the token may not read. Consul
// itself doesn't call that an error.
var errUnreadable = errors.New("Permission denied: the token may not read all of") //nolint:staticcheck // Consul's own words, which config.Advice looks for

// errDenied means that Consul refused an operation of a transaction.
var errDenied = errors.New("transaction refused")

// Forbidden reports whether the token lacks a permission.
func Forbidden(err error) bool {
	var status api.StatusError
	return errors.Is(err, errUnreadable) || errors.Is(err, errDenied) || errors.As(err, &status) &&
		status.Code == http.StatusForbidden
}

func (c *Client) fail(err error, operation string, object ...any) error {
	e := &Error{Operation: fmt.Sprintf(operation, object...), Err: err}
	if c.advice != nil {
		e.Advice = c.advice(e.Error())
	}
	return e
}
