// Package amqpconn opens and closes connections to RabbitMQ for scanners, consumers and
// doctor. It bounds how long a silent server can hold up a caller. Below the library,
// internal/amqpframe replaces what the library can't read.
package amqpconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
)

const (
	// frameMax is the frame_max to ask for, in bytes. It is RabbitMQ's default.
	frameMax = 128 << 10

	defaultTimeout   = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
)

// Config adds to what a URL says.
type Config struct {
	// Product and Name are shown in RabbitMQ's list of connections. "" for none.
	Product, Name string
	// Timeout bounds the whole of Connect. A URL's connection_timeout wins. Defaults to 10s.
	Timeout time.Duration
	// Heartbeat is the interval to ask the server for, in whole seconds. A URL's heartbeat
	// wins. Defaults to 10s.
	Heartbeat time.Duration
	// Gate decides which messages are received. nil: all.
	Gate *amqpframe.Gate
	// Transport returns the connection to use in place of stream, which is raw or TLS above
	// it. It is called once both are there. Closing raw never blocks. Defaults to stream.
	// internal/forward sets a deadline for each write with it: under an alarm, RabbitMQ
	// stops reading from connections that publish. A consumer publishes nothing, and doctor
	// cuts a connection when its time is over. So neither needs a deadline.
	Transport func(stream, raw net.Conn) net.Conn
}

// LoginError says that a server refused the user or the password.
type LoginError struct{ cause error }

// Error returns the server's words.
func (e *LoginError) Error() string { return e.cause.Error() }

// Unwrap returns the server's *amqp.Error.
func (e *LoginError) Unwrap() error { return e.cause }

// Connect opens a connection. The end of ctx ends a Connect that isn't ready, and nothing
// later. It doesn't use amqp.DialConfig, which can't be ended, and whose TLS would be above
// the transport. The error is a *LoginError if the server refuses the user.
func (s *Server) Connect(ctx context.Context, cfg Config) (*Conn, error) {
	timeout := cmp.Or(s.timeout, cfg.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	opened, err := s.open(ctx, raw, cfg)
	if err != nil {
		_ = raw.Close()
	}
	if !stop() {
		// The library reports a connection that the context cut as a wrong vhost.
		return nil, fmt.Errorf("open %s within %v: %w", s.Addr, timeout, ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	return &Conn{AMQP: opened, Server: s, raw: raw}, nil
}

func (s *Server) open(ctx context.Context, raw net.Conn, cfg Config) (*amqp.Connection, error) {
	stream := raw
	if s.TLS != nil {
		client := tls.Client(raw, s.TLS)
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS with %s: %w", s.Addr, err)
		}
		stream = client
	}
	if cfg.Transport != nil {
		stream = cfg.Transport(stream, raw)
	}
	frames := amqpframe.New(stream, cfg.Gate)
	properties := amqp.NewConnectionProperties()
	if cfg.Product != "" {
		properties["product"] = cfg.Product
	}
	if cfg.Name != "" {
		properties.SetClientConnectionName(cfg.Name)
	}
	sasl := make([]amqp.Authentication, len(s.sasl))
	for i, a := range s.sasl {
		sasl[i] = answered{a, properties}
	}
	opened, err := amqp.Open(frames, amqp.Config{
		SASL:       sasl,
		Vhost:      s.Vhost,
		Heartbeat:  cmp.Or(s.heartbeat, cfg.Heartbeat, defaultHeartbeat),
		ChannelMax: s.channelMax,
		FrameSize:  frameMax,
		Locale:     "en_US",
		Properties: properties,
	})
	if err == nil {
		frames.SetFrameMax(opened.Config.FrameSize)
		return opened, nil
	}
	refusal := new(amqp.Error)
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		// The library's guess. With the capability below, a wrong password has an answer.
		return nil, errors.New("the server closed the connection during the login")
	case errors.As(err, &refusal) && refusal.Server && refusal.Code == amqp.AccessRefused:
		return nil, &LoginError{err}
	}
	return nil, err
}

// answered is a login with the capability authentication_failure_close: RabbitMQ answers a
// wrong password at once. Without it, RabbitMQ closes the connection after three seconds and
// says nothing. The library writes its own capabilities into the properties, and then asks
// for the response (openTune in amqp091-go v1.16).
type answered struct {
	login      amqp.Authentication
	properties amqp.Table
}

// Mechanism returns the name of the login's SASL mechanism.
func (a answered) Mechanism() string { return a.login.Mechanism() }

// Response returns the login's response. It adds the capability, as the library has no
// setting for it.
func (a answered) Response() string {
	if capabilities, ok := a.properties["capabilities"].(amqp.Table); ok {
		capabilities["authentication_failure_close"] = true
	}
	return a.login.Response()
}
