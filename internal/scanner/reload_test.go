package scanner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/wait"
)

// reloading is a reloader whose topics are put together and never run. It connects to no
// server.
type reloading struct {
	*reloader
	t                *testing.T
	scanner          *Scanner
	started, retired []string
	reported         map[string]string // errors
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	s := newUnconnected(t)
	r := &reloading{reloader: s.reloader, t: t, scanner: s}
	r.of = r
	return r
}

func (r *reloading) serve(_ context.Context, doc config.Document) *served {
	r.started = append(r.started, doc.Name)
	return &served{topic: r.scanner.newTopic(doc)}
}

func (r *reloading) retire(v *served) { r.retired = append(r.retired, v.topic.name) }

func (r *reloading) report(_ uint64, errs, _ map[string]string) { r.reported = maps.Clone(errs) }

// hear applies topic documents, given as texts by name. A text that is no document counts
// as a broken one.
func (r *reloading) hear(texts map[string]string) {
	r.t.Helper()
	snap := config.Snapshot{Documents: map[string]config.Document{}}
	for name, text := range texts {
		snap.Documents[name] = parsed(name, text)
	}
	r.apply(r.t.Context(), snap)
}

func parsed(name, text string) config.Document {
	topic, err := config.ParseTopic(name, []byte(text))
	return config.Document{Name: name, Raw: []byte(text), Topic: topic, Err: err}
}

// is ends the test unless the topic orders has this shard count and this rate, and these
// topics have errors.
func (r *reloading) is(what string, shards, rate int, errs ...string) {
	r.t.Helper()
	s := r.topics["orders"].topic.inForce.settings()
	if s.Shards != shards || s.Rate != rate {
		r.t.Fatalf("%s: %d shards and a rate of %d, want %d and %d", what, s.Shards, s.Rate, shards, rate)
	}
	if got := slices.Sorted(maps.Keys(r.reported)); !slices.Equal(got, errs) {
		r.t.Fatalf("%s: errors of %q are reported, want %q", what, got, errs)
	}
}

func TestADocumentStartsItsTopicOnceAndChangesIt(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	r.is("the first document", 2, 0)
	orders := r.topics["orders"].topic
	changed := orders.inForce.changed.Next()
	r.hear(map[string]string{"orders": "{shards: 2}"})
	select {
	case <-changed:
		t.Error("the same document is applied again")
	default:
	}
	r.hear(map[string]string{"orders": "{shards: 2, rate: 5}", "mails": "{shards: 1}"})
	r.is("another rate", 2, 5)
	if n := orders.inForce.desired.Load(); n != 1 {
		t.Errorf("%d shard counts were desired, want 1", n)
	}
	r.hear(map[string]string{"orders": "{shards: 3, rate: 5}", "mails": "{shards: 1}"})
	r.is("another shard count", 3, 5)
	if n := orders.inForce.desired.Load(); n != 2 {
		t.Errorf("%d shard counts were desired, want 2", n)
	}
	if got := fmt.Sprint(r.started); got != "[orders mails]" {
		t.Errorf("started %s, want each once", got)
	}
}

func TestWhatIsBrokenChangesNothingAndIsReportedUntilItIsMended(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	r.hear(map[string]string{"orders": "{shards: 5000}", "mails": "{shards: 0}"})
	r.is("broken documents", 2, 0, "mails", "orders")
	if r.topics["mails"] != nil {
		t.Error("a topic is served that never had a good document")
	}
	r.apply(t.Context(), config.Snapshot{Err: errors.New("consul is away")})
	r.is("no answer", 2, 0, "", "mails", "orders")
	r.hear(map[string]string{"orders": "{shards: 4}"})
	r.is("one document fixed and one withdrawn", 4, 0)
}

func TestATopicEndsWhenItHasNoDocumentAndWasRemoved(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	orders := r.topics["orders"]
	orders.topic.resharder.Learn(shard.Placement{})
	r.reap(t.Context())
	if len(r.retired) > 0 {
		t.Fatal("a topic that has a document ended")
	}
	r.hear(nil)
	r.is("its document is gone", 2, 0)
	r.reap(t.Context())
	if fmt.Sprint(r.retired) != "[orders]" || r.topics["orders"] != nil {
		t.Errorf("retired %v, serves %v", r.retired, r.topics)
	}
}

// TestWhatRedisKeptIsServedUnlessTheSourceWasFaster: and a broken document in Redis isn't
// reported if the source's own is broken.
func TestWhatRedisKeptIsServedUnlessTheSourceWasFaster(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}", "mails": "{shards: 0}"})
	r.startKept(t.Context(), parsed("orders", "{shards: 9}"))
	r.is("served already", 2, 0, "mails")
	own := r.errors["mails"]
	r.startKept(t.Context(), parsed("mails", "{shards: -1}"))
	if r.errors["mails"] != own {
		t.Errorf("the error of mails is %q, want the source's: %q", r.errors["mails"], own)
	}
	r.startKept(t.Context(), parsed("mails", "{shards: 7}"))
	if v := r.topics["mails"]; v == nil || v.topic.inForce.settings().Shards != 7 || v.orphan.Load() {
		t.Errorf("mails, whose document is broken: %+v", v)
	}
	r.startKept(t.Context(), parsed("bills", "{shards: 1}"))
	if v := r.topics["bills"]; v == nil || !v.orphan.Load() {
		t.Errorf("bills, which has no document: %+v", v)
	}
	r.startKept(t.Context(), parsed("notes", "{shards: -1}"))
	if r.topics["notes"] != nil || r.errors["notes"] == "" {
		t.Errorf("notes, whose kept document is broken: %q", r.errors["notes"])
	}
	r.hear(map[string]string{"orders": "{shards: 2}"})
	if r.errors["notes"] == "" {
		t.Error("the error of what Redis keeps went with a snapshot of the source")
	}
}

// slowSave delays the first save of a document on its way to Redis.
type slowSave struct {
	first atomic.Bool
	begun chan struct{}
	letGo chan struct{}
	ended atomic.Int64
}

// around delays a request.
func (s *slowSave) around(ctx context.Context, r faults.Request) error {
	if cmd := r.Commands[0]; cmd.Name() != "set" || !strings.Contains(fmt.Sprint(cmd.Args()...), ":document:") {
		return r.Send(ctx)
	}
	if s.first.CompareAndSwap(false, true) {
		close(s.begun)
		<-s.letGo
	}
	defer s.ended.Add(1)
	return r.Send(ctx)
}

func TestTheNewestDocumentIsWhatRedisKeeps(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "rate: 1")}, nil)
	slow := &slowSave{begun: make(chan struct{}), letGo: make(chan struct{})}
	faults.Around(l.rdb, slow.around)
	l.start()
	wait.Closed(t, "the first document to be saved", slow.begun)
	l.write(map[string]string{"orders": declaring("orders", "rate: 2")})
	wait.For(t, "the second to be applied", func() bool { return l.served("orders").topic.inForce.settings().Rate == 2 })
	close(slow.letGo)
	wait.For(t, "two saves", func() bool { return slow.ended.Load() >= 2 })
	doc, err := l.topic("orders").Document(t.Context())
	l.ok(err)
	if !strings.Contains(string(doc), "rate: 2") {
		t.Errorf("Redis keeps %s, want the second document", doc)
	}
}

// brokenSource reports a mistake in each of its documents.
type brokenSource struct{ config.Source }

var errBroken = errors.New("orders:1: shards: must be 1 to 4096; got 0")

func (s brokenSource) Watch(ctx context.Context, apply func(config.Snapshot)) error {
	return s.Source.Watch(ctx, func(snap config.Snapshot) {
		snap.Documents = maps.Clone(snap.Documents)
		for name, doc := range snap.Documents {
			doc.Err = errBroken
			snap.Documents[name] = doc
		}
		apply(snap)
	})
}

// TestATopicWithABrokenDocumentIsNoOrphan: a scanner starts with a broken document. It
// serves the topic with the document that Redis keeps, and reports the mistake, not a
// missing document.
func TestATopicWithABrokenDocumentIsNoOrphan(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")},
		func(s config.Source) config.Source { return brokenSource{s} })
	orders := l.topic("orders")
	_, err := orders.Ensure(t.Context(), 2)
	l.ok(err)
	l.ok(orders.SaveDocument(t.Context(), []byte(declaring("orders", "shards: 2"))))
	l.start()
	if l.served("orders").orphan.Load() {
		t.Error("it is an orphan")
	}
	wait.For(t, "status to name the mistake, and nothing else", func() bool {
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		l.ok(err)
		notes := s.Topics[0].Notes
		if strings.Contains(fmt.Sprint(notes), "orphan") {
			t.Fatalf("notes: %q", notes)
		}
		return slices.Contains(notes, errBroken.Error())
	})
}

// remove takes a topic out of the file and out of Redis.
func (l *lone) remove(name string, left map[string]string) {
	l.t.Helper()
	l.write(left)
	_, err := admin.Removal{Topic: l.topic(name)}.Run(l.t.Context())
	l.ok(err)
	wait.For(l.t, "topic "+name+" to be served no more", func() bool { return l.served(name) == nil && !l.exports(name) })
}

func TestWhatARemovedTopicDeclaredIsNotDeclaredAgain(t *testing.T) {
	t.Parallel()
	witness := map[string]string{"witness": declaring("witness")}
	l := newLone(t, map[string]string{"witness": witness["witness"], "orders": declaring("orders")}, nil)
	l.start()
	l.remove("orders", witness)
	conn := l.broker()
	ch, err := conn.Channel()
	l.ok(err)
	l.ok(ch.ExchangeDelete("orders", false, false))
	for range 3 {
		l.ok(ch.ExchangeDelete("witness", false, false))
		l.bridge.Stop()
		l.ok(l.bridge.Start())
		wait.For(t, "the other topic's exchange to be declared again", func() bool { return l.declared(conn, "witness") })
	}
	if l.declared(conn, "orders") {
		t.Error("the exchange of a topic that was removed is there again")
	}
}

func TestATopicMadeAnewKeepsItsMetricsWhenTheOldOneEnds(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	old := l.served("orders")
	l.reloader.mu.Lock()
	l.reloader.topics["orders"] = l.serve(t.Context(), *old.topic.inForce.document.Load())
	l.reloader.mu.Unlock()
	l.ok(l.endTopic(t.Context(), old))
	if !l.exports("orders") {
		t.Error("the metrics of a topic that is served are not exported")
	}
	if _, why := old.topic.publisher.Ready(); why != "stopped" {
		t.Errorf("the old publisher is %q, want it stopped", why)
	}
}

func TestATopicThatItsRemovalBringsBackIsServedAgain(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	wait.For(t, "the document to be kept", func() bool {
		doc, err := l.topic("orders").Document(t.Context())
		l.ok(err)
		return doc != nil
	})
	l.write(nil)
	p, err := l.topic("orders").Placement(t.Context())
	l.ok(err)
	removed, err := l.topic("orders").Remove(t.Context(), p)
	l.ok(err)
	wait.For(t, "the topic to be served no more", func() bool { return removed && l.served("orders") == nil })
	_, err = l.topic("orders").Ensure(t.Context(), p.Shards)
	l.ok(err)
	wait.For(t, "the topic to be served", func() bool { return l.served("orders") != nil })
}

// TestASourceThatIsAwayIsNoMistake: the log says once, as a warning without a topic, that
// the source can't be read. It says once that it can be read again.
func TestASourceThatIsAwayIsNoMistake(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	l.ok(os.Rename(l.path, l.path+".away"))
	const away, back = "the source of topics can't be read, the last good settings stay in force", "the source of " +
		"topics can be read again"
	wait.For(t, "the log to say that the source is away", func() bool { return len(l.said.of(away)) > 0 })
	wait.For(t, "the heartbeat to say so", func() bool {
		members, err := l.members(t.Context())
		return err == nil && len(members) == 1 && members[0].Away && members[0].Errors[""] != ""
	})
	if s := l.status(); len(s.Notes) > 0 {
		t.Errorf("notes: %q", s.Notes)
	}
	l.ok(os.Rename(l.path+".away", l.path))
	wait.For(t, "the log to say that the source is back", func() bool { return len(l.said.of(back)) > 0 })
	if lines := l.said.of(away); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
		len(l.said.of(`topic=""`)) > 0 {
		t.Errorf("logged %q and %q", lines, l.said.of(`topic=""`))
	}
}
