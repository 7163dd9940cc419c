//go:build chaos

package servers_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestRabbitMQCluster: a quorum queue survives the crash of its leader.
func TestRabbitMQCluster(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "rabbitmq-server")
	ctx := t.Context()
	c, err := servers.StartRabbitMQCluster(ctx, servers.RabbitMQClusterConfig{Dir: t.TempDir(), Nodes: 3})
	check.OK(t, err)
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
	check.OK(t, declare(c.Nodes[2].URL("/"), false))
	leader, err := c.Leader(ctx, "q", nil)
	check.OK(t, err)
	check.OK(t, leader.Kill())
	check.Until(t, "another leader", func() bool {
		now, err := c.Leader(ctx, "q", leader)
		return err == nil && now != leader && declare(now.URL("/"), true) == nil
	})
	check.OK(t, leader.Restart(ctx))
}
