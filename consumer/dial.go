package consumer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
)

const (
	connectTimeout = 10 * time.Second
	heartbeat      = 10 * time.Second
)

// dial connects. A Conn of amqpframe must be above TLS. So dial does the TLS handshake itself,
// and gives the library a URL without TLS.
func (s *session) dial(ctx context.Context, url string, cfg Config) error {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return err
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(cfg.Name)
	_, behindScheme, _ := strings.Cut(url, ":")
	var frames *amqpframe.Conn
	s.conn, err = amqp.DialConfig("amqp:"+behindScheme, amqp.Config{
		Heartbeat: heartbeat, Properties: properties,
		Dial: func(network, _ string) (net.Conn, error) {
			stream, err := s.connect(ctx, network, uri, cfg.TLS)
			if err != nil {
				return nil, err
			}
			frames = amqpframe.New(stream)
			return frames, nil
		},
	})
	if err == nil {
		frames.SetFrameMax(s.conn.Config.FrameSize)
	}
	return err
}

// connect opens the TCP connection, and TLS above it if the URL asks for it.
func (s *session) connect(ctx context.Context, network string, uri amqp.URI, base *tls.Config) (net.Conn, error) {
	addr := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	raw, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.raw = raw
	if err := raw.SetDeadline(time.Now().Add(connectTimeout)); err != nil { // the library removes it
		return nil, err
	}
	if uri.Scheme != "amqps" {
		return raw, nil
	}
	config, err := tlsConfig(uri, base)
	if err == nil {
		client := tls.Client(raw, config)
		if err = client.HandshakeContext(ctx); err == nil {
			return client, nil
		}
	}
	_ = raw.Close()
	return nil, err
}

// tlsConfig returns base for the host of the URL. If base is nil, the URL may name files, as
// amqp.ParseURI describes.
func tlsConfig(uri amqp.URI, base *tls.Config) (config *tls.Config, err error) {
	if config = base.Clone(); config == nil {
		if config, err = tlsFiles(uri); err != nil {
			return nil, err
		}
	}
	if config.ServerName == "" {
		config.ServerName = uri.Host
	}
	return config, nil
}

func tlsFiles(uri amqp.URI) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: uri.ServerName}
	if uri.CACertFile != "" {
		authorities, err := os.ReadFile(uri.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("read CA certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(authorities)
	}
	if uri.CertFile != "" && uri.KeyFile != "" {
		certificate, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
