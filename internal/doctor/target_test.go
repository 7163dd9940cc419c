package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/heartbeat"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// target is a fleet with a configuration, for doctor to examine.
type target struct {
	*fixture.Redis
	Target

	t    *testing.T
	more string // the configuration except Redis
}

// newTarget returns a fleet without scanners. Its configuration has a section about Redis, and
// more.
func newTarget(t *testing.T, more string) *target {
	t.Helper()
	o := &target{t: t, Redis: fixture.New(t), more: more}
	o.configure(fmt.Sprintf("redis: {addrs: ['%s'], prefix: '%s'}\n", o.Addr, o.Prefix))
	return o
}

// newConsulTarget returns a fleet whose topics are in Consul.
func newConsulTarget(t *testing.T) *target {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	return newTarget(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\n", addr, prefix))
}

// newBrokerTarget returns a fleet whose topics are in Consul, and the URL of its RabbitMQ.
func newBrokerTarget(t *testing.T) (o *target, rabbitmq string) {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	rabbitmq = servertest.RabbitMQ(t)
	return newTarget(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n", addr, prefix,
		rabbitmq)), rabbitmq
}

// configure makes doctor's target from a section about Redis, and o.more.
func (o *target) configure(redis string) {
	o.t.Helper()
	o.Path = filepath.Join(o.t.TempDir(), "config.yaml")
	check.OK(o.t, os.WriteFile(o.Path, []byte(redis+o.more), 0o600))
	var err error
	o.Settings, err = config.Load(o.Path, nil)
	check.OK(o.t, err)
	options, err := connect.Redis(o.Settings.Redis, nil)
	check.OK(o.t, err)
	store, closing, err := shard.Open(nil, options, o.Settings.Redis.Prefix, 0)
	check.OK(o.t, err)
	o.t.Cleanup(func() { _ = closing() })
	o.Target.Store = store
	if o.Settings.Consul.Addr != "" {
		documents, err := topicconfig.Open(o.Settings.Consul, slog.New(slog.DiscardHandler))
		check.OK(o.t, err)
		o.Consul = documents.Consul
	}
}

// serve creates a topic with one shard, as a scanner does.
func (o *target) serve(topic string) {
	o.t.Helper()
	_, err := o.Redis.Store.Topic(topic).Ensure(o.t.Context(), 1)
	check.OK(o.t, err)
}

// member and heard are Start and Heard of the package heartbeat.
func (o *target) member(name string) *atomic.Pointer[balance.Member] {
	o.t.Helper()
	return heartbeat.Start(o.t, o.Redis.Store, balance.Member{Instance: name})
}

func (o *target) heard(name string, that func(balance.Member) bool) {
	o.t.Helper()
	heartbeat.Heard(o.t, o.Redis.Store, name, that)
}

// live makes a member that reports problems.
func (o *target) live(name string, problems ...problem.Problem) {
	o.t.Helper()
	o.member(name).Store(&balance.Member{Applied: 7, Problems: problems})
	o.heard(name, func(m balance.Member) bool { return m.Applied == 7 })
}

// worksBy makes a member report its applied documents, in its heartbeat and in Consul.
func (o *target) worksBy(name string, documents map[string]string, more balance.Member) {
	o.t.Helper()
	says := o.member(name)
	more.Applied, more.Documents = math.MaxInt64, config.HashAll(heartbeat.Digests(documents))
	says.Store(&more)
	heartbeat.WriteApplied(o.t, o.consul(), o.Settings.Consul.Prefix, name, documents)
	o.heard(name, func(m balance.Member) bool { return m.Documents == more.Documents })
}

func (o *target) consul() *api.Client {
	o.t.Helper()
	return fixture.Consul(o.t, o.Settings.Consul.Addr)
}

// puts writes documents to Consul.
func (o *target) puts(documents map[string]string) {
	o.t.Helper()
	fixture.WriteDocuments(o.t, o.consul(), o.Settings.Consul.Prefix, documents)
}

// found returns the findings of a check, one per line: state, problem and fix.
func (o *target) found(check string) string {
	o.t.Helper()
	var lines []string
	for _, f := range Examine(o.t.Context(), o.Target) {
		if f.Check == check {
			lines = append(lines, string(f.State)+": "+f.What+" -> "+f.Fix)
		}
	}
	return strings.Join(lines, "\n")
}

// finds checks that doctor has one finding of a check, which begins with want. An empty
// want means no finding.
func (o *target) finds(what, name, want string) {
	o.t.Helper()
	check.Line(o.t, what+": "+name, o.found(name), want)
}

// findsPart checks that a finding has a part.
func (o *target) findsPart(name, part string) {
	o.t.Helper()
	if got := o.found(name); !strings.Contains(got, part) {
		o.t.Errorf("%s: %s\nwant %s in it", name, got, part)
	}
}

// wholeRun is the longest time that Examine may take. The rest is for a slow machine.
const wholeRun = 10*time.Second + 5*time.Second

// timed returns doctor's findings, and fails the test if they took too long.
func (o *target) timed() findings {
	o.t.Helper()
	begun := time.Now()
	ended := make(chan findings, 1)
	ctx, cancel := context.WithCancel(o.t.Context())
	defer cancel()
	go func() { ended <- Examine(ctx, o.Target) }()
	select {
	case all := <-ended:
		o.t.Logf("doctor took %s:\n%s", time.Since(begun).Round(time.Millisecond), all)
		return all
	case <-time.After(wholeRun):
		o.t.Fatalf("doctor still runs after %s", wholeRun)
		return nil
	}
}

// findings is the result of Examine.
type findings []Finding

// String returns a line for each: state, check, problem and fix.
func (all findings) String() string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s: %s -> %s\n", f.State, f.Check, f.What, f.Fix)
	}
	return b.String()
}

// unasked checks that doctor says once that it couldn't check something, and why, and that it
// takes that for no fault.
func (o *target) unasked(all findings, what, why string) {
	o.t.Helper()
	times := 0
	for _, f := range all {
		switch {
		case f.Check == what && f.State == NotChecked && strings.Contains(f.What, why):
			times++
		case strings.Contains(f.Check+f.What+f.Fix, what):
			o.t.Errorf("%s isn't checked, and doctor says %v", what, f)
		}
	}
	if times != 1 {
		o.t.Errorf("want once that %s isn't checked, with %q:\n%s", what, why, all)
	}
}

func vhostOf(t *testing.T, url string) string {
	t.Helper()
	uri, err := amqp.ParseURI(url)
	check.OK(t, err)
	return uri.Vhost
}
