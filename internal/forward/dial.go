package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
)

// frameSize is the frame_max to ask for, in bytes. It is RabbitMQ's default.
const frameSize = 128 << 10

// endpoint is one broker to try.
type endpoint struct {
	addr      string // host:port, the only part of the URL that logs show
	vhost     string
	user      string      // "" if a certificate names it
	tls       *tls.Config // nil without TLS
	sasl      []amqp.Authentication
	heartbeat time.Duration
	timeout   time.Duration
	answer    time.Duration // how long the broker may take to answer a test of the connection
	receives  bool          // Config.Receives
}

// parseEndpoint never repeats the URL in an error, because the URL holds a password. In a
// malformed URL nobody can tell which part is the password.
func parseEndpoint(raw string, cfg Config) (endpoint, error) {
	uri, err := amqp.ParseURI(raw)
	if malformed := new(url.Error); errors.As(err, &malformed) {
		return endpoint{}, errors.New("must be amqp://user:password@host:5672/vhost, with reserved characters " +
			"percent-encoded")
	}
	if err != nil {
		return endpoint{}, err
	}
	if uri.CACertFile != "" || uri.CertFile != "" || uri.KeyFile != "" {
		return endpoint{}, errors.New("must not name TLS files; they belong to the tls settings")
	}
	e := endpoint{
		addr:      net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		vhost:     uri.Vhost,
		heartbeat: cfg.Heartbeat,
		timeout:   cfg.ConnectTimeout,
		answer:    cfg.pace.answer,
		receives:  cfg.Receives,
	}
	if uri.ConnectionTimeout > 0 {
		e.timeout = time.Duration(uri.ConnectionTimeout) * time.Millisecond
	}
	if u, err := url.Parse(raw); err == nil && u.Query().Has("heartbeat") {
		seconds, err := strconv.Atoi(u.Query().Get("heartbeat"))
		if err != nil {
			return endpoint{}, errors.New("heartbeat must be seconds")
		}
		e.heartbeat = time.Duration(seconds) * time.Second
	}
	if uri.Scheme == "amqps" {
		e.tls = tlsConfig(cfg.TLS, uri)
	}
	if e.sasl, err = mechanisms(uri); err == nil {
		if _, external := e.sasl[0].(*amqp.ExternalAuth); !external {
			e.user = uri.Username
		}
	}
	return e, err
}

func tlsConfig(base *tls.Config, uri amqp.URI) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		cfg = base.Clone()
	}
	if uri.ServerName != "" {
		cfg.ServerName = uri.ServerName
	}
	if cfg.ServerName == "" {
		cfg.ServerName = uri.Host
	}
	return cfg
}

func mechanisms(uri amqp.URI) ([]amqp.Authentication, error) {
	if len(uri.AuthMechanism) == 0 {
		return []amqp.Authentication{uri.PlainAuth()}, nil
	}
	var sasl []amqp.Authentication
	for _, name := range uri.AuthMechanism {
		switch strings.ToUpper(name) {
		case "PLAIN":
			sasl = append(sasl, uri.PlainAuth())
		case "AMQPLAIN":
			sasl = append(sasl, uri.AMQPlainAuth())
		case "EXTERNAL":
			sasl = append(sasl, &amqp.ExternalAuth{})
		default:
			return nil, fmt.Errorf("auth_mechanism must be plain, amqplain or external; got %q", name)
		}
	}
	return sasl, nil
}

// dial opens one connection within the endpoint's timeout. It doesn't use
// amqp.DialConfig, which can't be cancelled and would put TLS above the wire.
func dial(ctx context.Context, e endpoint, name string, writeTimeout time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, err
	}
	stream := raw
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	if e.tls != nil {
		client := tls.Client(raw, e.tls)
		if err := client.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("TLS with %s: %w", e.addr, err)
		}
		stream = client
	}
	conn, err := open(newWire(stream, raw, writeTimeout), e, name)
	if !stop() {
		// The context cut the connection. The library reports that as a wrong password or
		// vhost.
		return nil, fmt.Errorf("open %s within %v: %w", e.addr, e.timeout, ctx.Err())
	}
	if err != nil {
		_ = raw.Close()
		text := fmt.Sprintf("open %s: %s", e.addr, brokerText(err))
		if refusal := new(amqp.Error); errors.As(err, &refusal) && refusal != nil && refusal.Code == amqp.AccessRefused {
			return nil, &loginError{text}
		}
		return nil, errors.New(text)
	}
	return conn, nil
}

// loginError says that a broker refused the user or the password.
type loginError struct{ text string }

// Error returns the broker's address and its words.
func (e *loginError) Error() string { return e.text }

func open(w *wire, e endpoint, name string) (*conn, error) {
	properties := amqp.NewConnectionProperties()
	properties["product"] = appID
	if name != "" {
		properties["connection_name"] = name
	}
	var transport net.Conn = w
	frames := amqpframe.New(w)
	if e.receives {
		transport = frames
	}
	opened, err := amqp.Open(transport, amqp.Config{
		SASL:       e.sasl,
		Vhost:      e.vhost,
		Heartbeat:  e.heartbeat,
		FrameSize:  frameSize,
		Locale:     "en_US",
		Properties: properties,
	})
	if err != nil {
		return nil, err
	}
	frames.SetFrameMax(opened.Config.FrameSize)
	conn := &conn{
		amqp:     opened,
		wire:     w,
		addr:     e.addr,
		endpoint: e,
		closes:   opened.NotifyClose(make(chan *amqp.Error, 1)),
		blocking: opened.NotifyBlocked(make(chan amqp.Blocking, blockingBuffer)),
		routes:   make(chan Route, 1),
		frame:    opened.Config.FrameSize,
	}
	return conn, nil
}
