package amqpconn

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/retry"
)

// The limits of the pauses between tries to connect. They vary, so that a fleet doesn't come
// back all at once.
const (
	PauseMin = 100 * time.Millisecond
	PauseMax = 5 * time.Second
)

// Outage measures how long there is no connection, and paces the tries to open one. It is
// for one goroutine.
type Outage struct {
	pause  retry.Backoff
	opened time.Time // when the last connection was opened; zero if that failed
	since  time.Time // zero without an outage
}

// NewOutage returns an Outage that hasn't begun.
func NewOutage() *Outage { return &Outage{pause: retry.Backoff{Min: PauseMin, Max: PauseMax}} }

// Over notes that a connection was opened. It returns how long the outage lasted, 0 if there
// was none.
func (o *Outage) Over() (lasted time.Duration) {
	if !o.since.IsZero() {
		lasted = time.Since(o.since)
	}
	o.since, o.opened = time.Time{}, time.Now()
	return lasted
}

// Failed notes a lost connection or a failed try. It returns true if the outage begins.
func (o *Outage) Failed() (begins bool) {
	if !o.opened.IsZero() && time.Since(o.opened) > PauseMax {
		o.pause.Reset()
	}
	begins, o.opened = o.since.IsZero(), time.Time{}
	if begins {
		o.since = time.Now()
	}
	return begins
}

// Pause returns how long to wait before the next try. It grows from PauseMin to PauseMax. A
// connection that lasted longer than PauseMax resets it.
func (o *Outage) Pause() time.Duration { return o.pause.Next() }

// Conn is an open connection.
type Conn struct {
	AMQP   *amqp.Connection
	Server *Server
	raw    net.Conn // the TCP connection
}

// Dial is Connect for a caller that never has to cut the connection.
func (s *Server) Dial(ctx context.Context, cfg Config) (*amqp.Connection, error) {
	c, err := s.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return c.AMQP, nil
}

// Cut closes the TCP connection and never blocks. Pending reads, writes and requests end.
func (c *Conn) Cut() { _ = c.raw.Close() }

// Close closes the connection in order. If the server doesn't answer within limit, Close
// cuts the connection: the server may not have read what was written last.
func (c *Conn) Close(limit time.Duration) {
	c.Bounded(limit, func() { _ = c.AMQP.Close() }) // it may be closed already
	c.Cut()                                         // the library may leave the TCP connection open
}

// Bounded runs a request and returns when it has ended. It cuts the connection if that
// takes longer than limit.
func (c *Conn) Bounded(limit time.Duration, request func()) {
	timer := time.AfterFunc(limit, c.Cut)
	defer timer.Stop()
	request()
}

// Within runs a request in a goroutine of its own, because requests take no context. It
// returns false if the request hasn't ended within limit. The request then goes on until the
// server answers or the connection is lost.
func Within(limit time.Duration, request func()) (ended bool) {
	done := make(chan struct{})
	go func() {
		request()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Brief returns err with the AMQP code and the server's words as its text, as in
// "404 NOT_FOUND - no queue". Other errors keep their text.
func Brief(err error) error { return brief{err} }

type brief struct{ cause error }

func (e brief) Error() string {
	var answer *amqp.Error
	if errors.As(e.cause, &answer) && answer != nil {
		return strconv.Itoa(answer.Code) + " " + answer.Reason
	}
	return e.cause.Error()
}

func (e brief) Unwrap() error { return e.cause }

// MessageLimit returns the max_message_size of RabbitMQ, in bytes, if err says that a message is
// larger.
func MessageLimit(err error) (bytes int, ok bool) {
	var answer *amqp.Error
	if !errors.As(err, &answer) || answer == nil || answer.Code != amqp.PreconditionFailed {
		return 0, false
	}
	_, words, _ := strings.Cut(answer.Reason, "message size ")
	_, size, _ := strings.Cut(words, "max size ")
	bytes, err = strconv.Atoi(size)
	return bytes, err == nil
}

// Refused reports whether err has an AMQP code, such as amqp.NotFound.
func Refused(err error, code int) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer != nil && answer.Code == code
}
