package amqpconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Server is one server that a URL names, with the user and the vhost.
type Server struct {
	Addr  string // host:port, the only part of the URL that logs may show
	Vhost string
	User  string      // "" if a certificate names it
	TLS   *tls.Config // nil without TLS

	sasl       []amqp.Authentication
	heartbeat  time.Duration // 0: the URL doesn't say
	timeout    time.Duration
	channelMax uint16
}

// Parse reads amqp://user:password@host:5672/vhost, or amqps:// with TLS. base configures
// TLS; nil for the system's authorities. An error never repeats the URL, because it holds a
// password, and in a malformed URL nobody can tell which part that is.
func Parse(raw string, base *tls.Config) (*Server, error) {
	uri, err := amqp.ParseURI(raw)
	if err != nil {
		return nil, errors.New("must be amqp://user:password@host:5672/vhost, with reserved characters percent-encoded")
	}
	if uri.CACertFile != "" || uri.CertFile != "" || uri.KeyFile != "" {
		return nil, errors.New("must not name TLS files; they belong to the TLS settings")
	}
	s := &Server{Addr: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)), Vhost: uri.Vhost, channelMax: uri.ChannelMax,
		timeout: time.Duration(uri.ConnectionTimeout) * time.Millisecond}
	if u, err := url.Parse(raw); err == nil && u.Query().Has("heartbeat") {
		seconds, _ := strconv.Atoi(u.Query().Get("heartbeat")) // ParseURI has checked it
		s.heartbeat = time.Duration(seconds) * time.Second
	}
	if uri.Scheme == "amqps" {
		s.TLS = tlsConfig(base, uri)
	}
	if s.sasl, err = mechanisms(uri); err != nil {
		return nil, err
	}
	if _, external := s.sasl[0].(*amqp.ExternalAuth); !external {
		s.User = uri.Username
	}
	return s, nil
}

func tlsConfig(base *tls.Config, uri amqp.URI) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		config = base.Clone()
	}
	if uri.ServerName != "" {
		config.ServerName = uri.ServerName
	}
	if config.ServerName == "" {
		config.ServerName = uri.Host
	}
	return config
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
