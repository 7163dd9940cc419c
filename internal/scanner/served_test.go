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
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

func TestOnlyAnotherShardCountIsDesiredAgain(t *testing.T) {
	t.Parallel()
	orders := newUnconnected(t).newTopic(config.ParseDocument("orders", []byte("{shards: 2}"), 1))
	for _, c := range []struct {
		document string
		desired  uint64
	}{{"{shards: 2, rate: 5}", 1}, {"{shards: 3, rate: 5}", 2}} {
		changed := orders.inForce.Changed.Next()
		orders.apply(config.ParseDocument("orders", []byte(c.document), 2))
		check.Closed(t, "the change to be known", changed)
		if n, _ := orders.inForce.Desired(); n != c.desired {
			t.Errorf("%s: %d shard counts were desired, want %d", c.document, n, c.desired)
		}
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
	check.Closed(t, "the first document to be saved", slow.begun)
	l.write(map[string]string{"orders": declaring("orders", "rate: 2")})
	check.Until(t, "the second to be applied", func() bool {
		return l.served("orders").topic.inForce.Settings().Rate == 2
	})
	close(slow.letGo)
	check.Until(t, "two saves", func() bool { return slow.ended.Load() >= 2 })
	doc, err := l.store.Registry().Document(t.Context(), "orders")
	check.OK(l.t, err)
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
	check.OK(l.t, err)
	check.OK(l.t, l.store.Registry().SaveDocument(t.Context(), "orders", []byte(declaring("orders", "shards: 2"))))
	l.start()
	if l.documents.Orphans() != nil {
		t.Error("it is an orphan")
	}
	check.Until(t, "status to name the mistake, and nothing else", func() bool {
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		check.OK(l.t, err)
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
	check.OK(l.t, err)
	check.Until(l.t, "topic "+name+" to be served no more", func() bool {
		return l.served(name) == nil && !l.exports(name)
	})
}

func TestWhatARemovedTopicDeclaredIsNotDeclaredAgain(t *testing.T) {
	t.Parallel()
	witness := map[string]string{"witness": declaring("witness")}
	l := newLone(t, map[string]string{"witness": witness["witness"], "orders": declaring("orders")}, nil)
	l.start()
	l.remove("orders", witness)
	conn := l.broker()
	ch, err := conn.Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDelete("orders", false, false))
	for range 3 {
		check.OK(l.t, ch.ExchangeDelete("witness", false, false))
		l.bridge.Stop()
		check.OK(l.t, l.bridge.Start())
		check.Until(t, "the other topic's exchange to be declared again", func() bool { return l.declared(conn, "witness") })
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
	l.mu.Lock()
	delete(l.topics, "orders")
	l.mu.Unlock()
	l.serve(t.Context(), *old.topic.inForce.Document())
	check.OK(l.t, l.endTopic(t.Context(), old))
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
	check.Until(t, "the document to be kept", func() bool {
		doc, err := l.store.Registry().Document(t.Context(), "orders")
		check.OK(l.t, err)
		return doc != nil
	})
	l.write(nil)
	p, err := l.topic("orders").Placement(t.Context())
	check.OK(l.t, err)
	removed, err := l.topic("orders").Remove(t.Context(), p)
	check.OK(l.t, err)
	check.Until(t, "the topic to be served no more", func() bool { return removed && l.served("orders") == nil })
	_, err = l.topic("orders").Ensure(t.Context(), p.Shards)
	check.OK(l.t, err)
	check.Until(t, "the topic to be served", func() bool { return l.served("orders") != nil })
}

// TestASourceThatIsAwayIsNoMistake: the log says once, as a warning without a topic, that
// the source can't be read. It says once that it can be read again.
func TestASourceThatIsAwayIsNoMistake(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	check.OK(l.t, os.Rename(l.path, l.path+".away"))
	const away, back = "the source of topics can't be read, the last good settings stay in force", "the source of " +
		"topics can be read again"
	check.Until(t, "the log to say that the source is away", func() bool { return len(l.said.Lines(away)) > 0 })
	check.Until(t, "the heartbeat to say so", func() bool {
		members, err := l.members(t.Context())
		return err == nil && len(members) == 1 && members[0].Away && members[0].Errors[""] != ""
	})
	if s := l.status(); len(s.Notes) > 0 {
		t.Errorf("notes: %q", s.Notes)
	}
	check.OK(l.t, os.Rename(l.path+".away", l.path))
	check.Until(t, "the log to say that the source is back", func() bool { return len(l.said.Lines(back)) > 0 })
	if lines := l.said.Lines(away); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
		len(l.said.Lines(`topic=""`)) > 0 {
		t.Errorf("logged %q and %q", lines, l.said.Lines(`topic=""`))
	}
}
