package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// nobodyAt is an address of this machine where nothing listens.
func nobodyAt(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestHealthcheckNamesTheSettingOfItsAddress: if no scanner runs, the advice is about
// admin.listen and not about Redis.
func TestHealthcheckNamesTheSettingOfItsAddress(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "admin: {listen: '"+nobodyAt(t)+"'}\n")
	code, text := o.call("healthcheck")
	if code != cli.Failed || !strings.HasSuffix(text, "; check that a scanner runs there, and admin.listen\n") ||
		strings.Contains(text, "redis.addrs") {
		t.Errorf("code %d: %s", code, text)
	}
}

// TestAdviceIsGivenOnce: no output repeats its advice. The cases are two brokers that are
// away, a healthcheck, and a scanner's report about a topic.
func TestAdviceIsGivenOnce(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	listen := nobodyAt(t)
	o.more = fmt.Sprintf("rabbitmq: {urls: ['amqp://%s/', 'amqp://%s/']}\nadmin: {listen: '%s'}\n", nobodyAt(t),
		nobodyAt(t), listen)
	o.configure(t, fmt.Sprintf("redis: {addrs: ['%s']}\n", nobodyAt(t)))
	var log check.Log
	check.Background(t, "a scanner", func(ctx context.Context) error {
		run(ctx, []string{"run", "--config", o.config}, &log, &log)
		return nil
	})
	var said string
	check.Until(t, "the scanner to say that both servers are away", func() bool {
		_, said = o.call("healthcheck")
		return strings.Contains(said, "redis.addrs") && strings.Contains(said, "rabbitmq.urls")
	})
	for _, setting := range []string{"redis.addrs", "rabbitmq.urls"} {
		if n := strings.Count(said, "check that the server runs there, and "+setting); n != 1 {
			t.Errorf("%d times %s in %s", n, setting, said)
		}
	}
	if n := strings.Count(said, "connection refused"); n != 3 {
		t.Errorf("%d servers refuse, want 3: %s", n, said)
	}
}

// TestWhatScannersSayIsNoTroubleOfTheCaller: status --exit-code repeats a topic's reason
// and adds no advice of its own.
func TestWhatScannersSayIsNoTroubleOfTheCaller(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {orders: {}}\n")
	o.serve("orders", 1)
	trouble := "not connected to RabbitMQ: connection refused; check that the server runs there, and rabbitmq.urls"
	o.member("one").Store(&balance.Member{Applied: math.MaxInt64,
		Problems: []problem.Problem{problem.New(problem.TopicUnserved, "orders", trouble)}})
	o.heard("one", func(m balance.Member) bool { return len(m.Problems) > 0 })
	var out, said bytes.Buffer
	if code := run(t.Context(), []string{"status", "--exit-code", "--config", o.config}, &out,
		&said); code != cli.Unhealthy {
		t.Errorf("code %d", code)
	}
	if text := said.String(); strings.Count(text, "check that") != 1 || strings.Contains(text, "redis.addrs") {
		t.Errorf("it says %s", text)
	}
}

// TestTLSAgainstAPlainPortIsToBeTurnedOff: if the server doesn't speak TLS, the advice is
// to turn it off.
func TestTLSAgainstAPlainPortIsToBeTurnedOff(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servertest.RabbitMQ(t))
	if err != nil {
		t.Fatal(err)
	}
	consul, _ := servertest.Consul(t)
	consul = strings.TrimPrefix(consul, "http://")
	// A broker answers a handshake at once; Redis waits for the end of a line.
	o := newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['amqps://%s/']}\nconsul: {addr: 'https://%s'}\n", u.Host, consul))
	o.configure(t, fmt.Sprintf("redis: {addrs: ['%s'], tls: {enabled: true}}\n", u.Host))
	for check, want := range map[string]string{
		"redis.connection": "-> the server speaks no TLS at that port: set redis.tls.enabled to false, or redis.addrs " +
			"to the port that speaks it\n",
		"rabbitmq.connection": "-> the broker speaks no TLS at that port: write amqp:// in rabbitmq.urls[0], or the port " +
			"that speaks it\n",
		"consul.connection": "-> the agent speaks no TLS at that port: write http:// in consul.addr, or the port that " +
			"speaks it\n",
	} {
		_, text := o.call("check", "--connect")
		_, found, _ := strings.Cut(text, check)
		if _, fix, _ := strings.Cut(found, "\n"); !strings.HasPrefix(strings.TrimLeft(fix, " "), want) {
			t.Errorf("%s: want %q in %s", check, want, text)
		}
	}
}
