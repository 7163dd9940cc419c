package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// newTrialAlone returns a trial with a Redis of its own.
func newTrialAlone(t *testing.T) (*trial, *kept) {
	t.Helper()
	k := newKept(t, "redis.conf")
	s := newSettings(t)
	s.RedisAddr = k.server.Addr()
	return newTrial(t, s), k
}

// fullRedis: new tasks are refused, and stored ones are delivered.
func fullRedis(t *testing.T) {
	tr, k := newTrialAlone(t)
	check.OK(t, k.admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	tr.finds("redis.memory", "fail", "refuses new tasks", "fleet")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"redis_full"}, Exit: 4, Doctor: 1, Connect: 1,
		Ready: []int{200, 200}, Metrics: []string{"redis_full"}, Alerts: []string{"DuefleetRedisFull"}})
	check.OK(t, k.admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	tr.heals()
}

// emptiedRedis: the tasks are gone. The problem lasts until somebody accepts the loss.
func emptiedRedis(t *testing.T) {
	tr, k := newTrialAlone(t)
	check.OK(t, k.admin.FlushAll(t.Context()).Err())
	tr.tasks = nil
	advice := tr.finds("fleet", "fail", "redis lost the data of the fleet")["fleet"]
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"data_lost"}, Exit: 4, Doctor: 1, Ready: []int{200, 200},
		Metrics: []string{"data_lost"}, Alerts: []string{"DuefleetDataLost"}})
	tr.says(advice, "then run scanner data accept")
	tr.run("scanner data accept --yes --config " + tr.config)
	tr.awaitHealthy()
	tr.schedule("1h")
	tr.heals()
}

// replica: Redis answers, and refuses what writes.
func replica(t *testing.T) {
	tr, k := newTrialAlone(t)
	other := newKept(t, "")
	follow := func(k, master *kept) {
		t.Helper()
		host, port, _ := strings.Cut(master.server.Addr(), ":")
		k.ask("REPLICAOF", host, port)
		check.Until(t, "the replica to have all data", func() bool {
			return strings.Contains(k.admin.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
	}
	follow(other, k)
	other.ask("REPLICAOF", "NO", "ONE")
	follow(k, other)
	tr.finds("redis.role", "fail", "replica")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"redis_refuses"}, Exit: 4, Doctor: 1, Connect: 1,
		Ready: []int{503, 503}, Metrics: []string{"redis_unreachable", "redis_unreachable orders"},
		Alerts: []string{"DuefleetRedisDown"}})
	k.ask("REPLICAOF", "NO", "ONE")
	tr.heals()
}

// deadScanner: the other one delivers. A new one replaces it.
func deadScanner(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.awaitAge() // scanners of one rollout replace each other's predecessors
	check.OK(t, tr.scanners[0].Kill())
	tr.schedule("0s")
	tr.finds("fleet members", "fail", "1 of 2 scanners died")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"scanner_dead"}, Exit: 4, Doctor: 1, Ready: []int{200},
		Alerts: []string{"DuefleetScannersMissing"}})
	check.OK(t, tr.scanners[0].Start(check.Context(t)))
	tr.heals()
}

// awaitAge waits until no scanner counts as the one that replaces another.
func (tr *trial) awaitAge() {
	tr.t.Helper()
	check.Until(tr.t, "the scanners to be older than a silence", func() bool {
		var status struct{ Fleet []balance.Member }
		text := must(tr.t, command(tr.t, nil, programs.Scanner, "status", "-o", "json", "--config", tr.config))
		check.OK(tr.t, json.Unmarshal([]byte(text), &status))
		return !slices.ContainsFunc(status.Fleet, func(m balance.Member) bool {
			return m.Heartbeat.Sub(m.Started) <= 2*balance.Silence
		})
	})
}

// otherExchange: somebody deleted the exchange and declared it again with another type.
func otherExchange(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.OK(t, ch.ExchangeDelete("orders", false, false))
	check.OK(t, ch.ExchangeDeclare("orders", "headers", true, false, false, false, nil))
	tr.schedule("0s")
	tr.finds("topic orders exchange", "fail", "headers", "topic orders served")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"route_refused orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"route_refused orders"},
		Alerts: []string{"DuefleetTopicBlocked"}})
	check.OK(t, ch.ExchangeDelete("orders", false, false))
	tr.heals()
}
