package scanner

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
)

// of makes the scanner take its topics from a source with that name.
func (l *lone) of(source string) *lone {
	l.t.Helper()
	cfg, err := l.cfg, error(nil)
	cfg.SourceName, cfg.Registry = source, nil
	l.Scanner, err = New(cfg)
	check.OK(l.t, err)
	return l
}

// recorded creates a topic with three shards whose document comes from another source.
func (l *lone) recorded(source string, document string) {
	l.t.Helper()
	_, err := l.topic("orders").Ensure(l.t.Context(), 3)
	check.OK(l.t, err)
	check.OK(l.t, l.store.Registry().TakeSources(l.t.Context(), source, map[string]string{"orders": ""})["orders"].Err)
	check.OK(l.t, l.store.Registry().KeepDocument(l.t.Context(), "orders", source, []byte(document)))
}

// lives adds a member with this source to the fleet. It returns a function that ends the
// member.
func (l *lone) lives(instance, source string) (dies func()) {
	l.t.Helper()
	note, err := json.Marshal(balance.Member{Instance: instance, Source: source})
	check.OK(l.t, err)
	beat := func() {
		_, err := l.store.Registry().Heartbeat(l.t.Context(), instance, time.Hour, time.Hour)
		_, described := l.store.Registry().Describe(l.t.Context(), instance, note)
		if err := errors.Join(err, described); err != nil {
			l.t.Error(err)
		}
	}
	beat()
	ticker, ended := time.NewTicker(time.Second), make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				beat()
			}
		}
	}()
	return func() {
		close(ended)
		<-gone
		check.OK(l.t, l.store.Registry().Leave(l.t.Context(), instance))
	}
}

// TestAStrayScannerChangesNothing: a scanner with a file joins a fleet with Consul. It
// delivers by the fleet's document and follows its changes. It changes neither shard
// count nor document. It is ready, and /readyz, log and status say what it doesn't apply.
func TestAStrayScannerChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("stray", "shards: 8")}, nil).of(config.FileSource)
	fleets := declaring("orders", "shards: 3")
	l.recorded("consul:duefleet", fleets)
	l.start()
	const told = "takes its settings from file, but the fleet takes topics orders from consul:duefleet"
	var s admin.Status
	check.Until(t, "status to report the scanner with a file", func() bool {
		var err error
		s, err = admin.ReadStatus(t.Context(), l.store, "")
		return err == nil && len(s.Fleet) == 1 && strings.Contains(s.Fleet[0].Refused, told)
	})
	if p := l.problem(problem.OtherSource, ""); !strings.Contains(p.Text, told) || p.Since.IsZero() ||
		!slices.Equal(p.Nodes, []string{"lone"}) {
		t.Errorf("problem: %+v", p)
	}
	if s.Topics[0].Source != "consul:duefleet" || s.Fleet[0].Source != config.FileSource {
		t.Errorf("sources: the topic's %q, the scanner's %q", s.Topics[0].Source, s.Fleet[0].Source)
	}
	if r := l.ownSource(); r.OK || !strings.Contains(r.Detail, told) {
		t.Errorf("/readyz: %+v", r)
	}
	if lines := l.said.Lines(told); len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") {
		t.Errorf("logged %q", lines)
	}
	if in := l.served("orders").topic.inForce.Settings(); in.Exchange != "orders" || in.Shards != 3 {
		t.Errorf("it serves exchange %s, M %d", in.Exchange, in.Shards)
	}
	paused := declaring("orders", "shards: 3", "paused: true")
	check.OK(l.t, l.store.Registry().KeepDocument(t.Context(), "orders", "consul:duefleet", []byte(paused)))
	check.Until(t, "the scanner to follow the fleet's document",
		func() bool { return l.served("orders").topic.inForce.Settings().Paused })
	p, err := l.topic("orders").Placement(t.Context())
	check.OK(l.t, err)
	raw, err := l.store.Registry().Document(t.Context(), "orders")
	check.OK(l.t, err)
	if p.Shards != 3 || p.Phase != shard.Stable || string(raw) != paused {
		t.Errorf("placement %s, document %q", p, raw)
	}
	check.OK(l.t, l.rdb.Del(t.Context(), l.sourceKey()).Err()) // as an operator does to switch sources
	check.Until(t, "the scanner to apply its own document",
		func() bool { return l.served("orders").topic.inForce.Settings().Shards == 8 })
	check.Until(t, "status to be content", func() bool {
		return l.ownSource().OK &&
			l.status().Source == config.FileSource
	})
}

func (l *lone) sourceKey() string { return l.cfg.Settings.Redis.Prefix + ":document:{orders}:source" }

// TestAFleetOfFilesGoesOverToConsul: Consul takes the topic when the last scanner with a
// file has left, and not before. Meanwhile the new scanner is ready, and delivers by the
// files' document.
func TestAFleetOfFilesGoesOverToConsul(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4")}, nil).of(config.ConsulSource("duefleet"))
	l.recorded(config.FileSource, declaring("orders", "shards: 3"))
	dies := l.lives("with-a-file", config.FileSource)
	l.start()
	if in := l.served("orders").topic.inForce.Settings(); in.Shards != 3 {
		t.Errorf("M %d while a scanner with a file lives", in.Shards)
	}
	if r := l.topicsMade(); !r.OK {
		t.Error(r.Detail)
	}
	dies()
	check.Until(t, "the change to what Consul says", func() bool {
		s := l.status()
		return s.Shards == 4 &&
			s.Source == "consul:duefleet"
	})
	check.Until(t, "the document in Redis", func() bool {
		raw, err := l.store.Registry().Document(t.Context(), "orders")
		return err == nil && strings.Contains(string(raw), "shards: 4")
	})
}

// TestASourceThatCannotBeReadHoldsNothingUp: a scanner that can't read the record serves
// by its own document, as older versions did, and logs why.
func TestASourceThatCannotBeReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 2")}, nil).of(config.FileSource)
	check.OK(l.t, l.rdb.HSet(t.Context(), l.sourceKey(), "of", "another type").Err())
	l.start()
	if lines := l.said.Lines("the recorded sources of topics can't be read"); len(lines) != 1 ||
		!strings.Contains(lines[0], "WRONGTYPE") {
		t.Errorf("logged %q", lines)
	}
	if s := l.status(); s.Shards != 2 || s.Source != "" {
		t.Errorf("status: %+v", s)
	}
}
