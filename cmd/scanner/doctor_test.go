package main

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// examined returns the findings of `scanner doctor` and its exit code.
func (o *operator) examined() (findings []doctor.Finding, code int) {
	o.t.Helper()
	code, text := o.call("doctor", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&findings); err != nil {
		o.t.Fatalf("%v: %s", err, text)
	}
	return findings, code
}

// found returns the findings of a check, one per line: state, problem and fix.
func (o *operator) found(check string) string {
	o.t.Helper()
	findings, _ := o.examined()
	var lines []string
	for _, f := range findings {
		if f.Check == check {
			lines = append(lines, string(f.State)+": "+f.What+" -> "+f.Fix)
		}
	}
	return strings.Join(lines, "\n")
}

// finds checks that doctor has one finding of a check, which begins with want. An empty
// want means no finding.
func (o *operator) finds(what, check, want string) {
	o.t.Helper()
	if got := o.found(check); !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
		o.t.Errorf("%s: %s: %s\nwant %s", what, check, got, want)
	}
}

// notes writes a member's note about its applied documents to Consul.
func (o *operator) notes(member string, documents map[string]string) {
	o.t.Helper()
	client, prefix := o.consul()
	text, _ := json.Marshal(map[string]any{"documents": digests(documents)})
	pair := &api.KVPair{Key: prefix + "/status/" + member + "/config", Value: text}
	if _, err := client.KV().Put(pair, nil); err != nil {
		o.t.Fatal(err)
	}
}

func digests(documents map[string]string) map[string]string {
	all := map[string]string{}
	for topic, text := range documents {
		all[topic] = config.Digest([]byte(text))
	}
	return all
}

// worksBy makes a member report its applied documents, in its heartbeat and in Consul.
func (o *operator) worksBy(name string, documents map[string]string, more balance.Member) {
	o.t.Helper()
	says := o.member(name)
	more.Applied, more.Documents = math.MaxInt64, config.HashAll(digests(documents))
	says.Store(&more)
	o.notes(name, documents)
	o.heard(name, func(m balance.Member) bool { return m.Documents == more.Documents })
}

// TestDoctorNamesTopicAndMemberBehind: doctor names members that haven't applied a topic's
// document. It doesn't name members that have, that don't report it, or that refuse one,
// which is a separate finding.
func TestDoctorNamesTopicAndMemberBehind(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
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

// TestDoctorMendsABrokenDocument: doctor shows the mistake with its line, and doesn't take
// the topic for an orphan. Its commands work and remove no topic.
func TestDoctorMendsABrokenDocument(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "undone", "rate=5", "--no-wait")
	o.puts(map[string]string{
		"t39": "shards: 2\ndecl:\n  queue: t39.due\n", "both": "shards: 0\nrat: 5\n", "undone": "rate: many\n",
		"text": "shards: [",
	})
	for _, topic := range []string{"t39", "both"} {
		o.serve(topic, 1)
	}
	one := o.member("one")
	one.Store(&balance.Member{Applied: math.MaxInt64, Errors: map[string]string{"t39": "unknown key"},
		Problems: []problem.Problem{problem.New(problem.DocumentRefused, "t39", "unknown key")}})
	o.heard("one", func(m balance.Member) bool { return len(m.Errors) > 0 })
	findings, code := o.examined()
	for _, f := range findings {
		if strings.Contains(f.Fix, "topic rm") || strings.Contains(f.What, "orphan") {
			t.Errorf("%s: %s -> %s", f.Check, f.What, f.Fix)
		}
	}
	if code != cli.Failed {
		t.Errorf("exit code %d", code)
	}
	for topic, want := range map[string]string{
		"t39": "fail: t39:2: decl: unknown key; scanner one refuses it, and uses the last good one if there is one " +
			"-> scanner topic set t39 decl= --config ",
		"both":   "rat: unknown key; did you mean rate? -> scanner topic set both shards=VALUE rat= --config ",
		"undone": "rate: must be a whole number; or, back to the document from before, scanner topic undo undone --config ",
		"text":   "/topics/text in consul",
	} {
		got := o.found("topic " + topic + " document")
		want, undo, _ := strings.Cut(want, "; or, ")
		if !strings.Contains(got, want) || !strings.Contains(got, undo) || strings.Count(got, "fail: ") != 1 {
			t.Errorf("%s: %s\nwant %s and %q", topic, got, want, undo)
		}
	}
	o.wants(cli.Done, "topic t39 written", "topic", "set", "t39", "decl=", "--no-wait")
	o.wants(cli.Done, "topic both written", "topic", "set", "both", "shards=2", "rat=", "--no-wait")
	o.wants(cli.Done, "topic undone written", "topic", "undo", "undone", "--no-wait")
	one.Store(&balance.Member{Applied: math.MaxInt64})
	o.heard("one", func(m balance.Member) bool { return len(m.Errors) == 0 })
	o.finds("after the fix", "topic t39 document", "")
}

// TestDoctorRemovesNoTopicOfABrokenFile: with a broken file the topics aren't known.
func TestDoctorRemovesNoTopicOfABrokenFile(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {orders: {shards: 0}}\n")
	o.serve("orders", 1)
	o.finds("of a broken file", "topic orders document", "")
	if got := o.found("config"); !strings.Contains(got, "shards: must be 1 to 4096") {
		t.Error(got)
	}
}

// TestConsulAwayIsOneDegradedState: doctor and status report it once, for no topic.
func TestConsulAwayIsOneDegradedState(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	documents := map[string]string{"orders": "rate: 5\n", "mails": "{}"}
	o.puts(documents)
	for topic := range documents {
		o.serve(topic, 1)
	}
	o.worksBy("one", documents, balance.Member{Away: true, Errors: map[string]string{"": "consul answers 500"},
		Problems: []problem.Problem{problem.Away(problem.ConsulAway, "consul answers 500")}})
	o.worksBy("two", documents, balance.Member{})
	code, text := o.call("status", "--exit-code")
	const degraded = "scanner one: the source of topics can't be read, the last good settings stay in force: consul " +
		"answers 500"
	if code != cli.Unhealthy || strings.Count(text, "consul answers 500") != 2 ||
		!strings.Contains(text, "! "+degraded+"\n") || !strings.HasSuffix(text, "not healthy: "+degraded+"\n") {
		t.Errorf("code %d: %s", code, text)
	}
	if got := o.found("fleet configuration"); !strings.HasPrefix(got, "fail: degraded: "+degraded) ||
		strings.Contains(got, "\n") || strings.Contains(got, "refuses") {
		t.Errorf("doctor: %s", got)
	}
}

// TestDoctorKnowsWhatStatusKnows: everything that makes `status --exit-code` fail, except
// a pause, makes doctor fail. One cause is one finding.
func TestDoctorKnowsWhatStatusKnows(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\ntopics: {orders: {shards: 1}, mails: "+
		"{shards: 1}, late: {shards: 1, exchange: amq.direct}, parked: {shards: 1}}\n")
	for _, topic := range []string{"orders", "mails"} {
		o.serve(topic, 1)
	}
	o.finds("without a scanner", "fleet", "fail: no scanner runs")
	o.parkAs("parked", "p-1", "handler failed")
	o.serve("late", 1)
	document := []byte("shards: 1\nexchange: amq.direct\n")
	if err := o.store.Registry().SaveDocument(t.Context(), "late", document); err != nil {
		t.Fatal(err)
	}
	late := []shard.Entry{{ID: "l-1", When: task.Now(), Body: []byte{0}}}
	for _, r := range router.New(o.store).Topic("late").Schedule(t.Context(), late) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	before := redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMilli()), Member: "l-1"}
	if err := o.rdb.ZAdd(t.Context(), o.prefix+":due:{late:0}", before).Err(); err != nil {
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
	if _, code := o.examined(); code != cli.Failed {
		t.Errorf("exit code %d", code)
	}
}

// TestDoctorWarnsBeforeTheCertificateOfAServerEnds: the certificate of these tests ends
// within the hour. A server without TLS has none.
func TestDoctorWarnsBeforeTheCertificateOfAServerEnds(t *testing.T) {
	t.Parallel()
	amqp := servertest.RabbitMQ(t)
	newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\n", amqp)).finds("without TLS", "certificates", "")
	amqps, pool := servertest.OverTLS(t, amqp)
	u, err := url.Parse(amqps)
	check.OK(t, err)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	check.OK(t, err)
	block := &pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw}
	check.OK(t, conn.Close())
	ca := filepath.Join(t.TempDir(), "ca.pem")
	check.OK(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	o := newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s'], tls: {enabled: true, ca_file: '%s'}}\n", amqps, ca))
	o.finds("over TLS", "certificates", "warn: the certificate of RabbitMQ at "+u.Host+" ends at ")
}
