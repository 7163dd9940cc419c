package forward_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	secured, pool := servertest.OverTLS(t, servertest.RabbitMQ(t))

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
