package doctor

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorNamesTopicAndMemberBehind: doctor names members that haven't applied a topic's
// document. It doesn't name members that have, that don't report it, or that refuse one,
// which is a separate finding.
func TestDoctorNamesTopicAndMemberBehind(t *testing.T) {
	t.Parallel()
	o := newConsulTarget(t)
	now := map[string]string{"orders": "rate: 5\n", "mails": "{}"}
	o.puts(now)
	o.worksBy("one", now, balance.Member{})
	o.worksBy("two", now, balance.Member{})
	old := o.member("old")
	old.Store(&balance.Member{Applied: 7})
	o.heard("old", func(m balance.Member) bool { return m.Applied == 7 })
	o.finds("with nobody behind", "fleet configuration", "")
	o.worksBy("refusing", map[string]string{"orders": "rate: 4\n", "mails": "{}"},
		balance.Member{Errors: map[string]string{"orders": "unknown key"},
			Problems: []problem.Problem{problem.New(problem.DocumentRefused, "orders", "unknown key")}})
	o.finds("with one that refuses", "fleet configuration", "")
	o.finds("of one that refuses", "topic orders document", "fail: scanner refusing refuses it")
	o.worksBy("slow", map[string]string{"orders": "rate: 4\n", "mails": "{}"}, balance.Member{})
	o.finds("with one behind", "fleet configuration",
		"warn: scanner slow hasn't applied the document of topic orders -> ")
}

// TestDoctorKnowsWhatStatusKnows: everything that makes `status --exit-code` fail, except
// a pause, makes doctor fail. One cause is one finding.
func TestDoctorKnowsWhatStatusKnows(t *testing.T) {
	t.Parallel()
	o := newTarget(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\ntopics: {orders: {shards: 1}, mails: "+
		"{shards: 1}, late: {shards: 1, exchange: amq.direct}, parked: {shards: 1}}\n")
	for _, topic := range []string{"orders", "mails"} {
		o.serve(topic)
	}
	o.finds("without a scanner", "fleet", "fail: no scanner runs")
	o.serve("parked")
	fixture.Park(t, o.Redis.Store.Topic("parked"), "p-1", "handler failed")
	o.serve("late")
	document := []byte("shards: 1\nexchange: amq.direct\n")
	if err := o.Redis.Store.Registry().SaveDocument(t.Context(), "late", document); err != nil {
		t.Fatal(err)
	}
	fixture.Store(t, o.Redis.Store.Topic("late"), fixture.Entries(task.Now(), []byte{0}, "l-1")...)
	before := redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMilli()), Member: "l-1"}
	if err := o.Client.ZAdd(t.Context(), o.Prefix+":due:{late:0}", before).Err(); err != nil {
		t.Fatal(err)
	}
	trouble := []problem.Problem{problem.New(problem.TopicUnserved, "mails", "redis refuses"),
		problem.New(problem.TopicUnserved, "orders", "redis refuses")}
	fleet := map[string]*atomic.Pointer[balance.Member]{"one": o.member("one"), "two": o.member("two"),
		"three": o.member("three")}
	for name, says := range fleet {
		says.Store(&balance.Member{Applied: 7, Problems: trouble,
			Topics: map[string]balance.TopicNote{"mails": {Paused: true}}})
		o.heard(name, func(m balance.Member) bool { return len(m.Problems) > 0 })
	}
	for check, want := range map[string]string{
		"topics served": "fail: scanners one, three, two don't serve topics mails, orders: redis refuses -> scanner " +
			"status --config ",
		"topic orders served": "",
		"topic mails paused": "info: paused: nothing is delivered, and 0 tasks are due; scanner topic resume mails " +
			"--config ",
		"topic parked parked": "fail: 1 tasks were set aside; one of them because: handler failed -> scanner parked ls ",
		"topic late late":     "", // another finding names the cause
	} {
		o.finds("with three in trouble", check, want)
	}
	for name, says := range fleet {
		says.Store(&balance.Member{Applied: 8, Problems: trouble[:1]})
		o.heard(name, func(m balance.Member) bool { return m.Applied == 8 })
	}
	o.finds("once it is served", "topic late late", "fail: a task has been due for 1h0m")
}

// TestDoctorNamesAScannerWithoutADocument: if other scanners have the document, the topic is
// no orphan, and no advice removes it. That holds for doctor with the configuration of the
// others and with the one of that scanner.
func TestDoctorNamesAScannerWithoutADocument(t *testing.T) {
	t.Parallel()
	o := newTarget(t, "topics: {orders: {}}\n")
	o.serve("orders")
	o.serve("bills")
	members := map[string]*atomic.Pointer[balance.Member]{}
	for _, name := range []string{"one", "two", "stray"} {
		members[name] = o.member(name)
	}
	reports := func(name, source string, documents uint64, problems ...problem.Problem) {
		t.Helper()
		members[name].Store(&balance.Member{Applied: 7, Source: source, Documents: documents,
			Problems: append([]problem.Problem{}, problems...)})
		o.heard(name, func(m balance.Member) bool { return m.Documents == documents })
	}
	orphan := func(topic string) problem.Problem {
		return problem.New(problem.TopicOrphan, topic, "orphan: this scanner's source has no document of it")
	}
	reports("one", "file", 1)
	reports("two", "file", 1)
	reports("stray", "consul", 2, orphan("orders"), orphan("bills"))
	o.finds("with the configuration of the others", "topic orders served", "fail: scanner stray has no document of it; "+
		"scanners one, two have, from file -> give scanner stray their source, or stop it; the topic stays")
	o.finds("with the configuration of the stray", "topic bills document", "fail: scanner stray has no document of it; "+
		"scanners one, two have, from file; this configuration has none either -> give scanner stray and this configuration "+
		"their source, or stop it; the topic stays")
	for _, f := range Examine(t.Context(), o.Target) {
		if strings.Contains(f.What+f.Fix, "topic rm") || strings.Contains(f.What+f.Fix, "remove it") {
			t.Errorf("%s: %s -> %s", f.Check, f.What, f.Fix)
		}
	}
	reports("one", "file", 3, orphan("bills"))
	reports("two", "file", 3, orphan("bills"))
	o.finds("if no scanner has it", "topic bills document", "fail: an orphan: Redis holds the topic, and it has no "+
		"document -> put it back under topics in")
}
