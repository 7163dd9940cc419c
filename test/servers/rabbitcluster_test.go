//go:build chaos

package servers_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestRabbitMQCluster: a quorum queue survives the crash of its leader.
func TestRabbitMQCluster(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	ctx := t.Context()
	c, err := servers.StartRabbitMQCluster(ctx, servers.RabbitMQClusterConfig{Dir: t.TempDir(), Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	declare := func(url string, passive bool) error {
		conn, err := amqp.Dial(url)
		if err != nil {
			return err
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if passive {
			_, err = ch.QueueDeclarePassive("q", true, false, false, false, nil)
		} else {
			_, err = ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		}
		return err
	}
	if err := declare(c.Nodes[2].URL("/"), false); err != nil {
		t.Fatal(err)
	}
	leader, err := c.Leader(ctx, "q", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "another leader", func() bool {
		now, err := c.Leader(ctx, "q", leader)
		return err == nil && now != leader && declare(now.URL("/"), true) == nil
	})
	if err := leader.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}
