package servers_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTwoRabbitMQNodes: two nodes of one process are independent. One keeps its messages
// over a crash while the other keeps running.
func TestTwoRabbitMQNodes(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	started := make(chan *servers.RabbitMQ)
	for range 2 {
		cfg := servers.RabbitMQConfig{Dir: t.TempDir(), Management: true, Conf: "heartbeat = 7"}
		go func() { started <- startRabbitMQ(t, cfg) }()
	}
	one, two := <-started, <-started
	if one == nil || two == nil {
		t.FailNow()
	}
	version, err := one.Version(t.Context())
	if err != nil || !regexp.MustCompile(`^RabbitMQ \d+\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("got %q, %v", version, err)
	}
	check.OK(t, one.AddVhost(t.Context(), "only/here"))
	checkVhost(t, one, true)
	checkVhost(t, two, false)

	publish(t, one.URL("only/here"))
	// On a busy machine, a node killed within a second after a declare can lose the queue
	// and its confirmed messages.
	_, err = one.Ctl(t.Context(), "eval", "mnesia:dump_log().")
	check.OK(t, err)
	other, err := amqp.Dial(two.URL("/"))
	check.OK(t, err)
	defer other.Close()
	if other.Config.Heartbeat.Seconds() != 7 {
		t.Errorf("the heartbeat is %s, want the 7s of Conf", other.Config.Heartbeat)
	}
	check.OK(t, one.Kill())
	check.OK(t, one.Restart(t.Context()))
	if got := consume(t, one.URL("only/here")); got != "kept" {
		t.Errorf("the queue holds %q after a crash, want kept", got)
	}
	if other.IsClosed() {
		t.Error("the other node lost its connection")
	}
	check.OK(t, one.DeleteVhost(t.Context(), "only/here"))
	checkVhost(t, one, false)
}

// TestVhostWithoutManagement: vhosts can be made and deleted without the HTTP API.
func TestVhostWithoutManagement(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	node := startRabbitMQ(t, servers.RabbitMQConfig{Dir: t.TempDir(), Nodename: "bare"})
	if node == nil {
		t.FailNow()
	}
	if node.ManagementURL() != "" {
		t.Errorf("the management URL is %q, want none", node.ManagementURL())
	}
	check.OK(t, node.AddVhost(t.Context(), "v"))
	publish(t, node.URL("v"))
	check.OK(t, node.DeleteVhost(t.Context(), "v"))
	conn, err := amqp.Dial(node.URL("v"))
	if err == nil {
		_ = conn.Close()
	}
	if refusal := (*amqp.Error)(nil); !errors.As(err, &refusal) || refusal.Code != amqp.NotAllowed {
		t.Errorf("after it was deleted: %v, want that there is no such vhost", err)
	}
	if _, err := node.Ctl(t.Context(), "no_such_command"); err == nil {
		t.Error("rabbitmqctl took no_such_command")
	}
}

func checkVhost(t *testing.T, node *servers.RabbitMQ, want bool) {
	t.Helper()
	out, err := node.Ctl(t.Context(), "list_vhosts")
	check.OK(t, err)
	if got := strings.Contains(out, "only/here"); got != want {
		t.Errorf("the node at %s has the vhost: %t, want %t", node.URL("/"), got, want)
	}
}

// publish publishes one durable message to a durable queue and waits for the confirm.
func publish(t *testing.T, url string) {
	t.Helper()
	ch := servertest.Channel(t, url)
	check.OK(t, ch.Confirm(false))
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	check.OK(t, err)
	msg := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("kept")}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "q", true, false, msg)
	check.OK(t, err)
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("confirm: %t, %v", ok, err)
	}
}

func consume(t *testing.T, url string) string {
	t.Helper()
	msg, ok, err := servertest.Channel(t, url).Get("q", true)
	if err != nil || !ok {
		t.Fatalf("get: %t, %v", ok, err)
	}
	return string(msg.Body)
}
