package main

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
)

// TestAPauseWithAnEndAndAReason: the document holds both, and resume removes them.
func TestAPauseWithAnEndAndAReason(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	pause := func(more ...string) []string {
		return append([]string{"topic", "pause", "orders", "--no-wait"}, more...)
	}
	gets := func(want string) {
		t.Helper()
		if _, text := o.call("topic", "get", "orders"); !regexp.MustCompile("^" + want + "$").MatchString(text) {
			t.Errorf("the document is %q, want %q", text, want)
		}
	}
	o.wants(cli.Done, "orders.paused_until: (none) -> 2126-12-01T10:00:00.000Z",
		pause("--until", "2126-12-01T11:00:00+01:00", "--reason", "it's: on")...)
	gets("rate: 5\npaused: true\npaused_until: \"2126-12-01T10:00:00.000Z\"\npaused_reason: \"it's: on\"\n")
	if l := o.newest(); l.Reason != "it's: on" || l.Verb != "pause" {
		t.Errorf("the history says %+v", l)
	}
	o.wants(cli.Done, "until 2126-12-01T10:00:00.000Z", "topic", "ls")
	o.wants(cli.Done, "written", pause("--until", "90m")...)
	gets("rate: 5\npaused: true\npaused_until: \"20[0-9T:.-]+Z\"\n")
	doc, err := config.ParseTopic("orders", []byte(o.document()))
	if end := time.Until(doc.PauseEnds()); err != nil || end < 80*time.Minute || end > 90*time.Minute {
		t.Errorf("it ends in %s, %v", end, err)
	}
	o.wants(cli.Done, "written", pause()...)
	gets("rate: 5\npaused: true\n")
	o.wants(cli.Done, "nothing to change", pause()...)
	o.wants(cli.Done, "written", pause("--reason", "why not")...)
	gets("rate: 5\npaused: true\npaused_reason: \"why not\"\n")
	o.wants(cli.Done, "written", "topic", "resume", "orders", "--no-wait", "--reason", "done")
	gets("rate: 5\npaused: false\n")
	o.wants(cli.Usage, "which is not in the future", pause("--until=-1m")...)
	o.wants(cli.Usage, `--until "soon": want RFC 3339`, pause("--until", "soon")...)
	gets("rate: 5\npaused: false\n")
}

// TestAnOldScannerIsNotToRefuseAPause: an old scanner would refuse --until and go on
// delivering, so nothing is written. A reason alone is kept only in the history.
func TestAnOldScannerIsNotToRefuseAPause(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=5", "--no-wait")
	says := o.member("old")
	o.wants(cli.Failed, "which would refuse a pause with --until and go on delivering: old; nothing was written", "topic",
		"pause", "orders", "--until", "2h", "--no-wait")
	if doc := o.document(); doc != "rate: 5\n" {
		t.Errorf("written: %q", doc)
	}
	o.wants(cli.Done, "it is only in the history", "topic", "pause", "orders", "--reason", "moving", "--no-wait")
	if doc := o.document(); doc != "rate: 5\npaused: true\n" || o.newest().Reason != "moving" {
		t.Errorf("written: %q, %+v", doc, o.newest())
	}
	says.Store(&balance.Member{Applied: math.MaxInt64, Format: config.Format()})
	o.heard("old", func(m balance.Member) bool { return m.Format == config.Format() })
	o.wants(cli.Done, "written", "topic", "pause", "orders", "--until", "2h", "--no-wait")
	if doc := o.document(); !strings.Contains(doc, "paused_until: ") {
		t.Errorf("written: %q", doc)
	}
}

// TestAPauseInRedisNeedsNoDocument: it is written for a topic of a file, and while Consul is
// away. The verb waits for the scanners, and resume names a pause that is left.
func TestAPauseInRedisNeedsNoDocument(t *testing.T) {
	t.Parallel()
	o := newOperator(t, fmt.Sprintf("consul: {addr: '%s'}\n", nobodyAt(t)))
	o.serve("orders", 1)
	pause := []string{"topic", "pause", "orders", "--in-redis"}
	says := o.member("one")
	o.wants(cli.Failed, "not paused by one: they are of an older version", append(pause, "--reason", "twice")...)
	holds, err := o.store.Registry().Holds(t.Context())
	if h := holds["orders"]; err != nil || h.Reason != "twice" || !h.Until.IsZero() {
		t.Errorf("held as %+v, %v", h, err)
	}
	says.Store(&balance.Member{Topics: map[string]balance.TopicNote{"orders": {Paused: true}}})
	o.wants(cli.Done, "applied by all live scanners (1)", append(pause, "--until", "2h")...)
	if holds, err = o.store.Registry().Holds(t.Context()); err != nil || time.Until(holds["orders"].Until) < time.Hour {
		t.Errorf("held as %+v, %v", holds["orders"], err)
	}
	o.wants(cli.Usage, "which is not in the future", append(pause, "--until=-1m")...)
	o.wants(cli.NotFound, "unknown topic", "topic", "pause", "bills", "--in-redis")
	o.wants(cli.Done, "still paused by one", "topic", "resume", "orders", "--in-redis")
	o.wants(cli.Done, "wasn't paused in Redis", "topic", "resume", "orders", "--in-redis", "--no-wait")
}

// TestResumeNamesAPauseInRedis: it stays.
func TestResumeNamesAPauseInRedis(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "paused=true", "--no-wait")
	o.serve("orders", 1)
	o.wants(cli.Done, "paused in Redis", "topic", "pause", "orders", "--in-redis", "--no-wait")
	o.wants(cli.Done, "still paused in Redis: scanner topic resume orders --in-redis", "topic", "resume", "orders",
		"--no-wait")
}

// document returns the document of topic orders in Consul.
func (o *operator) document() string {
	o.t.Helper()
	_, text := o.call("topic", "get", "orders")
	return text
}
