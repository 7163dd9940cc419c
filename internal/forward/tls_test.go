package forward_test

import (
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, pool := servertest.Certificate(t)
	secured := secure(t, servertest.RabbitMQ(t), cert)

	p, got := publisher(t, connect(t, forward.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: pool}}), "topic",
		forward.Route{
			Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
		})
	ready(t, p)
	batch := messages("topic", "m", 3000)
	publish(t, p, batch...)
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) {
		t.Errorf("%v, want all confirmed", n)
	}

	stranger := connect(t, forward.Config{URLs: []string{secured}})
	wait.For(t, "the unknown authority as a reason", func() bool {
		connected, _, reason := stranger.State()
		return !connected && strings.Contains(reason, "certificate")
	})
}

// secure puts TLS before the broker and returns the URL to it.
func secure(t *testing.T, rawURL string, cert tls.Certificate) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	check.OK(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	check.OK(t, err)
	front := &proxy{listener: listener, target: u.Host, conns: make(map[net.Conn]struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		front.accept()
		front.running.Wait()
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		front.cut()
		<-done
	})
	u.Scheme, u.Host = "amqps", listener.Addr().String()
	return u.String()
}
