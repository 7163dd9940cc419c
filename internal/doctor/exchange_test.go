package doctor

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorNamesAnotherTypeOfADeclaredExchange: a scanner's next declaration would be
// refused. A binding, which doctor can't see, wouldn't help.
func TestDoctorNamesAnotherTypeOfADeclaredExchange(t *testing.T) {
	t.Parallel()
	o, url := newBrokerTarget(t)
	o.puts(map[string]string{"orders": "declare: {queue: due}\n", "bills": "exchange: bills\n"})
	ch := servertest.Channel(t, url)
	check.OK(o.t, ch.ExchangeDeclare("orders", "fanout", true, false, false, false, nil))
	check.OK(o.t, ch.ExchangeDeclare("bills", "fanout", true, false, false, false, nil))
	if _, err := ch.QueueDeclare("due", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	o.finds("another type", "topic orders exchange", "fail: exchange orders is of type 'fanout', and scanners declare it "+
		"as direct: RabbitMQ refuses that with 406 when they connect again -> rabbitmqadmin -V "+vhostOf(t, url)+
		" delete exchange name=orders, so that a scanner makes it again; or scanner topic set orders declare.type=fanout")
	o.finds("another type", "topic orders binding", "")
	o.finds("an exchange that no scanner declares", "topic bills exchange", "ok: exchange bills is there")
	if err := ch.ExchangeDelete("orders", false, false); err != nil {
		t.Fatal(err)
	}
	arguments := amqp.Table{"alternate-exchange": "lost"}
	check.OK(o.t, ch.ExchangeDeclare("orders", "direct", true, false, false, false, arguments))
	o.finds("another argument", "topic orders exchange", "fail: exchange orders is there with another alternate-exchange "+
		"than scanners declare: ")
	if err := ch.ExchangeDelete("orders", false, false); err != nil {
		t.Fatal(err)
	}
	check.OK(o.t, ch.ExchangeDeclare("orders", "direct", true, false, false, false, nil))
	o.finds("the same type", "topic orders exchange", "ok: exchange orders is there")
	if said := o.found("topic orders exchange"); !strings.Contains(said, "of type direct") {
		t.Errorf("it says %s", said)
	}
}
