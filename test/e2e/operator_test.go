package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// operatorsRights returns the rights of an operator's user of Redis: those in deploy/redis,
// and those that the command in docs/deploy.md adds.
func operatorsRights(t *testing.T, least rights) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	more := regexp.MustCompile(`s/\$/ ([^/]+)/' deploy/redis/operator\.acl`).FindSubmatch(page)
	if more == nil {
		t.Fatal("docs/deploy.md has no command that makes an operator's user")
	}
	return append(slices.Clone(least.redisOperator), strings.Fields(string(more[1]))...)
}

// newOperated returns a fleet of two scanners with the documented identities, and an
// operator's configuration. A consumer takes what is due, so the fleet is healthy.
func newOperated(t *testing.T, g *guarded, least rights) (w, operator *fixture) {
	t.Helper()
	w = g.fixture("duefleet", nil)
	for _, user := range []string{"duefleet", "operator"} {
		rights := slices.Clone(least.rabbitmqDeadLetter)
		rights[3] = user
		g.ctl("add_user", user, "secret")
		g.ctl(rights...)
	}
	w.settings.More = map[string]fleet.Topic{
		"redis":    {"username": grant(t, w.redis, least.redisScanner, "scanner-secret"), "password": "scanner-secret"},
		"rabbitmq": {"urls": []string{g.amqp("duefleet", "secret")}},
		"consul":   {"token": g.token("scanner", least.consulScanner)},
	}
	w.write()
	operator = w.as("operator.yaml", map[string]fleet.Topic{
		"redis": {"username": grant(t, w.redis, operatorsRights(t, least), "operator-secret"),
			"password": "operator-secret"},
		"rabbitmq": {"urls": []string{g.amqp("operator", "secret")}},
		"consul":   {"token": g.token("operator", least.consulTopic)},
	})
	must(t, operator.scanner("topic", "create", "orders", "shards=2", "max_attempts=1", "declare.queue=orders.due",
		"declare.queue_type=classic", "declare.dead_letter=orders.dead"))
	w.start(2)
	w.awaitServed(2)
	w.consume("orders.due")
	return w, operator
}

// healthy waits until doctor ends with 0, and returns what it says.
func (w *fixture) healthy() (said string) {
	w.t.Helper()
	check.Until(w.t, "doctor to find a healthy fleet", rarely(func() bool {
		out := w.scanner("doctor")
		said = out.Stdout + out.Stderr
		if out.Code != 0 {
			w.t.Log(said)
		}
		return out.Code == 0 && strings.Contains(said, "2 scanners run")
	}))
	return said
}

// park makes a task of orders a parked one: its queue isn't bound.
func (w *fixture) park(id string) {
	w.t.Helper()
	if err := w.channel().QueueUnbind("orders.due", "orders", "orders", nil); err != nil {
		w.t.Fatal(err)
	}
	must(w.t, w.producer("schedule", "--topic", "orders", "--id", id, "--in", "0s"))
	check.Until(w.t, "a parked task", rarely(func() bool { return w.status().Topic("orders").Parked == 1 }))
}

// TestTheOperatorsIdentityIsEnough: with the identity that docs/deploy.md describes for
// operators, doctor checks all of a healthy fleet, and every verb works. Redis refuses
// nothing, so its ACL log stays empty.
func TestTheOperatorsIdentityIsEnough(t *testing.T) {
	t.Parallel()
	g, least := newGuarded(t), readRights(t)
	w, operator := newOperated(t, g, least)
	if said := operator.healthy(); strings.Contains(said, "not checked") || strings.Contains(said, "NOPERM") {
		t.Errorf("with an operator's identity doctor doesn't check all:\n%s", said)
	}
	for _, verb := range [][]string{
		{"status", "--exit-code"}, {"check"}, {"check", "--connect"}, {"topic", "ls"}, {"topic", "get", "orders"},
		{"topic", "set", "orders", "rate=500"}, {"topic", "history", "orders"}, {"topic", "undo", "orders"},
		{"topic", "pause", "orders"}, {"topic", "resume", "orders"}, {"tasks", "ls", "orders"}, {"data", "accept"},
	} {
		operator.says("", verb...)
	}

	w.park("replayed")
	said := operator.scanner("doctor").Stdout
	if !holdsLine(said, "fail", []string{"topic orders parked", "NO_ROUTE"}) || strings.Contains(said, "operator's") {
		t.Errorf("an operator's doctor doesn't say why a task is parked:\n%s", said)
	}
	operator.says("replayed", "parked", "ls", "orders")
	operator.says("", "parked", "replay", "orders", "--all", "--yes")
	w.park("purged")
	checkScannersDoctor(t, w)
	operator.says("", "parked", "purge", "orders", "--all", "--yes")

	lost := w.redis.Del(t.Context(), "duefleet:identity")
	if lost.Err() != nil {
		t.Fatal(lost.Err())
	}
	check.Until(t, "the fleet to miss its data", rarely(func() bool {
		return strings.Contains(operator.scanner("status", "-o", "json").Stdout, "data_lost")
	}))
	operator.says("accepted", "data", "accept", "--yes")
	operator.healthy()
	checkOlderRights(t, w, operator, g, least)
	operator.says("", "topic", "rm", "orders", "--purge", "--yes")
	w.stop()
	checkRefused(t, w.redis)
}

// checkScannersDoctor checks doctor's output with the scanners' identity while a task is
// parked. It names once what it may not read. The advice names the identity that it needs.
func checkScannersDoctor(t *testing.T, w *fixture) {
	t.Helper()
	said := w.scanner("doctor").Stdout
	for line, n := range map[string]int{
		"not checked: redis.persistence (appendfsync): ": 1, "not checked: redis.users: ": 1,
		"not checked: old queues and intakes: consul.token may not read duefleet/history/": 1,
		"why, only an operator's user of Redis may read":                                   1,
		"that takes an operator's configuration: docs/deploy.md":                           1,
		"not known": 0, "fail ": 1,
	} {
		if strings.Count(said, line) != n {
			t.Errorf("with a scanner's identity doctor doesn't say %d times %q:\n%s", n, line, said)
		}
	}
	if !holdsLine(said, "ok", []string{"redis.rights", "may run all"}) ||
		!holdsLine(said, "ok", []string{"consul.rights", "duefleet/identity/"}) {
		t.Errorf("doctor finds the scanners' rights wanting:\n%s", said)
	}
}

// checkOlderRights checks what doctor says with the rights of older versions. A scanner's
// token may not write the identity. An operator's user and token lack a right each.
func checkOlderRights(t *testing.T, w, operator *fixture, g *guarded, least rights) {
	t.Helper()
	more := w.settings.More
	old := w.as("old-scanner.yaml", map[string]fleet.Topic{"redis": more["redis"], "rabbitmq": more["rabbitmq"],
		"consul": {"token": g.token("old-scanner", withoutRule(t, least.consulScanner,
			`key_prefix "duefleet/identity/"`, "duefleet"))}})
	out := old.scanner("doctor")
	if out.Code != 1 ||
		!holdsLine(out.Stdout, "fail", []string{"consul.rights", "may not write under duefleet/identity/"}) ||
		!strings.Contains(out.Stdout, `key_prefix "duefleet/identity/" {policy="write"}`) {
		t.Errorf("doctor doesn't miss the right to the identity, code %d:\n%s", out.Code, out.Stdout)
	}

	grant(t, w.redis, operatorsRights(t, least), "operator-secret", "+zrank")
	more = operator.settings.More
	old = w.as("old-operator.yaml", map[string]fleet.Topic{"redis": more["redis"], "rabbitmq": more["rabbitmq"],
		"consul": {"token": g.token("old-operator", withoutRule(t, least.consulTopic,
			`key_prefix "duefleet/history/"`, "duefleet"))}})
	out = old.scanner("doctor")
	if out.Code != 0 || !holdsLine(out.Stdout, "warn", []string{"redis.rights", "may not run zrank"}) ||
		!holdsLine(out.Stdout, "warn", []string{"consul.rights", "may not write under duefleet/history/"}) {
		t.Errorf("doctor doesn't name what an operator lacks, code %d:\n%s", out.Code, out.Stdout)
	}
	grant(t, w.redis, operatorsRights(t, least), "operator-secret")
}
