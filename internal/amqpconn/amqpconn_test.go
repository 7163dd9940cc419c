package amqpconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestARefusedLoginHasTheServersWords, which RabbitMQ sends only to a client that asks for
// them. All mechanisms ask.
func TestARefusedLoginHasTheServersWords(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"", "?auth_mechanism=amqplain"} {
		u, err := url.Parse(servertest.RabbitMQ(t) + mechanism)
		check.OK(t, err)
		u.User = url.UserPassword("guest", "sesame")
		s, err := amqpconn.Parse(u.String(), nil)
		check.OK(t, err)
		_, err = s.Dial(wait.Context(t), amqpconn.Config{})
		if !errors.As(err, new(*amqpconn.LoginError)) || !strings.Contains(err.Error(), "Login was refused") ||
			strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: got %v", mechanism, err)
		}
		u.User = url.UserPassword("guest", "guest")
		s, err = amqpconn.Parse(u.String(), nil)
		check.OK(t, err)
		conn, err := s.Dial(wait.Context(t), amqpconn.Config{Name: "right"})
		check.OK(t, err)
		check.OK(t, conn.Close())
	}
}

// TestASilentEndOfTheLoginIsNoRefusal: a server that stops closes connections, and the next
// try may succeed.
func TestASilentEndOfTheLoginIsNoRefusal(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(servertest.RabbitMQ(t))
	check.OK(t, err)
	s, err := amqpconn.Parse("amqp://guest:guest@"+passing(t, server.Host, 8)+"/", nil)
	check.OK(t, err)
	if _, err = s.Dial(wait.Context(t), amqpconn.Config{}); err == nil || errors.As(err, new(*amqpconn.LoginError)) ||
		!strings.Contains(err.Error(), "closed the connection during the login") {
		t.Errorf("got %v", err)
	}
}

// passing returns the address of a proxy that ends a connection after the client has sent
// more than that many bytes.
func passing(t *testing.T, target string, most int) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	wait.Background(t, "the proxy", func(context.Context) error {
		client, err := listener.Accept()
		if err != nil {
			return nil //nolint:nilerr // the test is over
		}
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if err != nil {
			return err
		}
		defer server.Close()
		p := make([]byte, most)
		if _, err := client.Read(p); err != nil {
			return err
		}
		if _, err := server.Write(p); err != nil {
			return err
		}
		start := make([]byte, 64<<10)
		n, err := server.Read(start)
		if err != nil {
			return err
		}
		if _, err := client.Write(start[:n]); err != nil {
			return err
		}
		_, err = client.Read(p)
		return err
	})
	return listener.Addr().String()
}

// TestDialEndsWithItsTime, at a server that never answers, with TLS too.
func TestDialEndsWithItsTime(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer listener.Close()
	for _, scheme := range []string{"amqp", "amqps"} {
		s, err := amqpconn.Parse(scheme+"://u:secret@"+listener.Addr().String()+"/", nil)
		check.OK(t, err)
		_, err = s.Dial(wait.Context(t), amqpconn.Config{Timeout: time.Millisecond})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", scheme, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"amqp://u:secret@h":                            "h:5672 / u",
		"amqp://u:secret@h:1/v":                        "h:1 v u",
		"amqps://u:secret@h/?server_name_indication=s": "h:5671 / u TLS s",
		"amqps://u:secret@h/?auth_mechanism=external":  "h:5671 /  TLS h",
		"amqp://u:secret@h/?auth_mechanism=magic":      "auth_mechanism must be plain, amqplain or external",
		"amqp://u:secret@h/?heartbeat=often":           "must be amqp://user:password@host:5672/vhost",
		"amqps://u:secret@h/?cacertfile=ca.pem":        "must not name TLS files",
		"amqp://u:secret%@h/":                          "must be amqp://user:password@host:5672/vhost",
		"http://u:secret@h/":                           "must be amqp://user:password@host:5672/vhost",
		"":                                             "must be amqp://user:password@host:5672/vhost",
	} {
		s, err := amqpconn.Parse(raw, &tls.Config{MinVersion: tls.VersionTLS13})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = s.Addr + " " + s.Vhost + " " + s.User
			if s.TLS != nil {
				got += " TLS " + s.TLS.ServerName
			}
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "secret") || err == nil && got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}
