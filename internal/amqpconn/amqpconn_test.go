package amqpconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

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
		_, err = s.Dial(check.Context(t), amqpconn.Config{})
		if !errors.As(err, new(*amqpconn.LoginError)) || !strings.Contains(err.Error(), "Login was refused") ||
			strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: got %v", mechanism, err)
		}
		u.User = url.UserPassword("guest", "guest")
		s, err = amqpconn.Parse(u.String(), nil)
		check.OK(t, err)
		conn, err := s.Dial(check.Context(t), amqpconn.Config{Name: "right"})
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
	proxy := faults.Proxy(t, faults.Local, server.Host)
	const header = 8 // bytes that a client sends before the login
	faults.Toxic(t, proxy, "stops", "limit_data", "upstream", map[string]any{"bytes": header + 1})
	s, err := amqpconn.Parse("amqp://guest:guest@"+proxy.Listen+"/", nil)
	check.OK(t, err)
	if _, err = s.Dial(check.Context(t), amqpconn.Config{}); err == nil || errors.As(err, new(*amqpconn.LoginError)) ||
		!strings.Contains(err.Error(), "closed the connection during the login") {
		t.Errorf("got %v", err)
	}
}

// TestCloseEndsAtASilentServer: what hangs ends once the connection is cut.
func TestCloseEndsAtASilentServer(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(servertest.RabbitMQ(t))
	check.OK(t, err)
	proxy := faults.Proxy(t, faults.Local, server.Host)
	server.Host = proxy.Listen
	s, err := amqpconn.Parse(server.String(), nil)
	check.OK(t, err)
	conn, err := s.Connect(check.Context(t), amqpconn.Config{})
	check.OK(t, err)
	faults.Toxic(t, proxy, "silent", "timeout", "downstream", map[string]any{"timeout": 0})
	asked := make(chan error, 1)
	if amqpconn.Within(time.Millisecond, func() {
		_, err := conn.AMQP.Channel()
		asked <- err
	}) {
		t.Error("a silent server answered")
	}
	conn.Close(time.Millisecond)
	if err := check.Receive(t, "the end of the request", asked); err == nil {
		t.Error("a channel of a connection that was cut")
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := amqpconn.NewOutage()
		if o.Over() != 0 || !o.Failed() || o.Failed() {
			t.Error("an outage begins once, with the first failure")
		}
		for range 20 { // the pauses grow
			o.Pause()
		}
		time.Sleep(time.Minute)
		if got := o.Over(); got != time.Minute {
			t.Errorf("it lasted %v, want 1m", got)
		}
		time.Sleep(amqpconn.PauseMax + 1)
		if !o.Failed() {
			t.Error("another outage doesn't begin")
		}
		if got := o.Pause(); got > amqpconn.PauseMin {
			t.Errorf("a pause of %v after a connection that lasted, want at most %v", got, amqpconn.PauseMin)
		}
	})
}

func TestErrorsInBrief(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("declare: %w", &amqp.Error{Code: amqp.NotFound, Reason: "NOT_FOUND - no queue"})
	for want, err := range map[string]error{"404 NOT_FOUND - no queue": missing, "EOF": io.EOF} {
		if got := amqpconn.Brief(err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := amqpconn.Refused(amqpconn.Brief(err), amqp.NotFound); got != (want != "EOF") {
			t.Errorf("%v: refused %v", err, got)
		}
	}
	if amqpconn.Refused(missing, amqp.AccessRefused) || amqpconn.Refused(nil, amqp.NotFound) {
		t.Error("another code counts")
	}
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
		_, err = s.Dial(check.Context(t), amqpconn.Config{Timeout: time.Millisecond})
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
