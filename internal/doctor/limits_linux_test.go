package doctor

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const intakeTopics = "topics: {orders: {shards: 1, declare: {queue: orders.due}, intake: {exchange: orders.in, " +
	"queue: orders.in}}}\n"

// ownRabbitMQ returns a node that a test may break, with lines of rabbitmq.conf.
func ownRabbitMQ(t *testing.T, conf string) *servers.RabbitMQ {
	t.Helper()
	node, err := servers.StartRabbitMQ(check.Context(t), servers.RabbitMQConfig{Dir: t.TempDir(), Conf: conf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Resume() // a stopped process ends only after it
		_ = node.Kill()
	})
	return node
}

// intakeTarget returns a fleet whose topic has an intake at a broker, and two scanners
// that report no problem.
func intakeTarget(t *testing.T, broker string) *target {
	t.Helper()
	o := newTarget(t, "rabbitmq: {urls: ['"+broker+"']}\n"+intakeTopics)
	o.serve("orders")
	const document = "declare: {queue: orders.due}\nintake: {exchange: orders.in, queue: orders.in}\nshards: 1\n"
	if err := o.Redis.Store.Registry().SaveDocument(t.Context(), "orders", []byte(document)); err != nil {
		t.Fatal(err)
	}
	o.live("one")
	o.live("two")
	return o
}

// TestDoctorEndsDuringAnAlarm: a blocked broker answers nothing on a connection that
// published, so doctor tries no rights of the intake and no large message then. Before the alarm
// it learns max_message_size.
func TestDoctorEndsDuringAnAlarm(t *testing.T) {
	t.Parallel()
	node := ownRabbitMQ(t, "max_message_size = 100000")
	o := intakeTarget(t, node.URL("/"))
	o.learnsMessageSize(node)
	if _, err := node.Ctl(t.Context(), "set_vm_memory_high_watermark", "absolute", "1MB"); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(node.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseDeadline(time.Now()) }()
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "", "nowhere", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	check.Receive(t, "the alarm", blocked)
	all := o.timed()
	if Failed(all) == 0 || !strings.Contains(all.String(), "RabbitMQ blocks publishers") {
		t.Errorf("%s", all)
	}
	o.unasked(all, "topic orders intake rights", "blocks publishers")
	o.finds("an alarm", messageSize, "")
}

const messageSize = "rabbitmq.message_size"

// learnsMessageSize checks what doctor says about a max_message_size of 100,000 bytes. RabbitMQ
// compares it before it looks at the user's rights.
func (o *target) learnsMessageSize(node *servers.RabbitMQ) {
	o.t.Helper()
	o.finds("a limit below max_payload", messageSize, "warn: RabbitMQ takes messages of at most 100000 bytes and "+
		"max_payload is 262144, so larger tasks are parked -> set max_message_size of RabbitMQ to 262144 or more, or "+
		"max_payload to 100000")
	o.Settings.MaxPayload = 100_000
	o.finds("the same limit", messageSize, "ok: RabbitMQ takes messages of at most 100000 bytes")
	own := o.Settings.RabbitMQ.URLs
	for _, args := range [][]string{{"add_user", "reader", "secret"}, {"set_permissions", "reader", "^$", "^$", ".*"}} {
		_, err := node.Ctl(o.t.Context(), args...)
		check.OK(o.t, err)
	}
	o.Settings.RabbitMQ.URLs = []string{strings.Replace(own[0], "guest:guest", "reader:secret", 1)}
	o.finds("a user that may not publish", messageSize, "ok: RabbitMQ takes messages of at most 100000 bytes")
	o.Settings.MaxPayload = 99_999
	o.finds("that user, one byte more", messageSize, "info: RabbitMQ takes messages above max_payload, which is 99999 ")
	o.Settings.RabbitMQ.URLs = own
}

// TestDoctorEndsWhateverHangs: servers that accept connections and answer nothing are reported as
// not checked. The scanners' own problems are the finding.
func TestDoctorEndsWhateverHangs(t *testing.T) {
	t.Parallel()
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		node := ownRabbitMQ(t, "")
		o := intakeTarget(t, node.URL("/"))
		if err := node.Pause(); err != nil {
			t.Fatal(err)
		}
		all := o.timed()
		o.unasked(all, "rabbitmq.connection", "no answer within 5s")
		if Failed(all) > 0 || FleetUnknown(all) {
			t.Errorf("the scanners report no problem:\n%s", all)
		}
		o.live("three", problem.New(problem.RabbitMQUnreachable, "", "not connected to RabbitMQ: timeout"))
		all = o.timed()
		if Failed(all) == 0 || !strings.Contains(all.String(), "scanner three: not connected to RabbitMQ") {
			t.Errorf("want the scanner's problem:\n%s", all)
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := servertest.OwnRedis(t)
		o := newTarget(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n"+intakeTopics)
		o.configure("redis: {addrs: ['" + server.Addr() + "'], prefix: x}\n")
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Resume() })
		all := o.timed()
		o.unasked(all, "redis.connection", "no answer within 5s")
		if !FleetUnknown(all) {
			t.Errorf("nothing is known of the fleet:\n%s", all)
		}
		if !strings.Contains(all.String(), "rabbitmq.connection") {
			t.Errorf("doctor doesn't ask RabbitMQ:\n%s", all)
		}
	})
	t.Run("consul", func(t *testing.T) {
		t.Parallel()
		servertest.Need(t, "consul")
		agent, err := servers.StartConsul(check.Context(t), servers.ConsulConfig{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = agent.Resume(), agent.Kill() })
		o := newTarget(t, "consul: {addr: '"+agent.Addr()+"'}\nrabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n")
		o.live("one")
		o.live("two")
		if err := agent.Pause(); err != nil {
			t.Fatal(err)
		}
		all := o.timed()
		o.unasked(all, "consul.connection", "no answer within 5s")
		if Failed(all) > 0 || FleetUnknown(all) {
			t.Errorf("the scanners report no problem:\n%s", all)
		}
	})
}
