package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func noRabbitMQ(t *testing.T) {
	s, node := newSettings(t), ownRabbitMQ(t)
	s.RabbitMQURL = node.URL("/")
	tr := newTrial(t, s)
	check.OK(t, node.Kill())
	tr.schedule("0s")
	tr.says(tr.finds("rabbitmq.connection", "fail", "refused")["rabbitmq.connection"], "start the broker")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"rabbitmq_unreachable orders"}, Exit: 4, Doctor: 1,
		Connect: 1, Ready: []int{503, 503}, Metrics: []string{"rabbitmq_unreachable orders"},
		Alerts: []string{"DuefleetRabbitMQDown"}})
	check.OK(t, node.Restart(t.Context()))
	tr.heals()
}

// lostExchange: nobody declares it, since the document says nothing of that.
func lostExchange(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders declare= --config " + tr.config)
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.OK(t, ch.ExchangeDelete("orders", false, false))
	tr.schedule("0s")
	tr.finds("topic orders exchange", "fail", "no exchange 'orders'", "topic orders served")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"exchange_missing orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"exchange_missing orders"},
		Alerts: []string{"DuefleetTopicBlocked"}})
	tr.run("scanner topic set orders declare.queue=orders.due declare.queue_type=classic --config " + tr.config)
	tr.heals()
}

// otherIntake: somebody deleted the intake's exchange and queue, and declared the exchange
// again with another type.
func otherIntake(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders intake.exchange=orders.in --config " + tr.config)
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.OK(t, ch.ExchangeDelete("orders.in", false, false))
	check.OK(t, ch.ExchangeDeclare("orders.in", "headers", true, false, false, false, nil))
	_, err := ch.QueueDelete("duefleet.orders.intake", false, false, false)
	check.OK(t, err)
	tr.schedule("0s")
	tr.finds("topic orders intake exchange", "fail", "differs from the settings", "topic orders served")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"intake_stopped orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"intake_stopped orders"}, Alerts: []string{"DuefleetProblem"}})
	check.OK(t, ch.ExchangeDelete("orders.in", false, false))
	tr.heals()
}

// noQueue: the tasks are tried again. The document doesn't declare the binding, so that no
// scanner makes it again. One alert says soon that they are late, and the other one why.
func noQueue(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders declare= max_attempts=1000 backoff.max=1s --config " + tr.config)
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.OK(t, ch.QueueUnbind("orders.due", "orders", "orders", nil))
	tr.schedule("0s")
	tr.finds("topic orders binding", "fail", "no queue is bound to exchange orders for key orders")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"tasks_retried orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Alerts: []string{"DuefleetMessagesRefused", "DuefleetTasksLate"}})
	check.OK(t, ch.QueueBind("orders.due", "orders", "orders", false, nil))
	tr.heals()
}

// lowRate: one task per second leaves, and the others have been due for long.
func lowRate(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders rate=1 --config " + tr.config)
	var lines strings.Builder
	for range 200 {
		id := fmt.Sprint("o-", len(tr.tasks))
		fmt.Fprintf(&lines, `{"id": %q, "payload": %q, "in": "1h"}`+"\n", id, id)
		tr.tasks = append(tr.tasks, id)
	}
	must(t, command(t, []byte(lines.String()), programs.Producer, "load", "orders", "--redis-addr", tr.settings.RedisAddr,
		"--redis-prefix", tr.settings.RedisPrefix))
	tr.rewrite(tr.tasks[3:], func([]byte) {})
	tr.finds("topic orders late", "fail", "a task has been due for")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"rate_limited orders", "tasks_late orders"}, Exit: 4,
		Doctor: 1, Ready: []int{200, 200}, Alerts: []string{"DuefleetTasksLate", "DuefleetLatenessHigh"}})
	tr.run("scanner topic set orders rate=0 --config " + tr.config)
	tr.heals()
}

// interruptedRemoval: the last step of a removal is missing.
func interruptedRemoval(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic create mails shards=1 declare.queue=mails.due --config " + tr.config)
	tr.run("scanner topic rm mails --yes --config " + tr.config)
	rdb := redisAt(t, tr.settings.RedisAddr)
	check.OK(t, rdb.SAdd(t.Context(), tr.settings.RedisPrefix+":topics", "mails").Err())
	tr.schedule("0s")
	advice := tr.finds("topic mails removal", "fail", "was interrupted")["topic mails removal"]
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"removal_interrupted mails"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}})
	tr.run(tr.advised(advice, "scanner topic rm mails") + " --yes")
	tr.heals()
}
