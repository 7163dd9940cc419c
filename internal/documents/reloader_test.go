package documents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// reloading is a reloader whose scanner only notes what it should serve. It connects to no
// server.
type reloading struct {
	*Reloader
	t                *testing.T
	applied, retired []string
	serves           map[string]config.Topic
	removed          string // the topic that was removed from Redis
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, "duefleet")
	check.OK(t, err)
	metrics := telemetry.Declare[Metrics](&telemetry.Set{})
	r := &reloading{t: t, serves: map[string]config.Topic{}}
	r.Reloader = New(Config{
		Store: store, Metrics: metrics, Error: func(string) {}, Live: func() int { return 1 },
		Log: slog.New(slog.DiscardHandler), Register: notebook{},
		Serve: func(_ context.Context, doc config.Document) {
			r.applied, r.serves[doc.Name] = append(r.applied, doc.Name), doc.Topic
		},
		Retire: func(topic string) {
			r.retired = append(r.retired, topic)
			delete(r.serves, topic)
		},
		Placement: func(topic string) (shard.Placement, bool) { return shard.Placement{}, topic == r.removed },
	})
	return r
}

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

// is ends the test unless the topic orders has this shard count and this rate. The newest note
// for Consul must have errors of these topics.
func (r *reloading) is(what string, shards, rate int, errs ...string) {
	r.t.Helper()
	s := r.serves["orders"]
	if s.Shards != shards || s.Rate != rate {
		r.t.Fatalf("%s: %d shards and a rate of %d, want %d and %d", what, s.Shards, s.Rate, shards, rate)
	}
	newest := <-r.registration.notes
	r.registration.notes <- newest
	if got := slices.Sorted(maps.Keys(newest.Errors)); !slices.Equal(got, errs) {
		r.t.Fatalf("%s: errors of %q are reported, want %q", what, got, errs)
	}
}

func TestADocumentStartsItsTopicOnceAndChangesIt(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	r.is("the first document", 2, 0)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	if len(r.applied) > 1 {
		t.Error("the same document is applied again")
	}
	r.hear(map[string]string{"orders": "{shards: 2, rate: 5}"})
	r.is("another rate", 2, 5)
	r.hear(map[string]string{"orders": "{shards: 2, rate: 5}", "mails": "{shards: 1}"})
	r.hear(map[string]string{"orders": "{shards: 3, rate: 5}", "mails": "{shards: 1}"})
	r.is("another shard count", 3, 5)
	if got := fmt.Sprint(r.applied); got != "[orders orders mails orders]" {
		t.Errorf("applied documents of %s, want each once", got)
	}
}

func TestWhatIsBrokenChangesNothingAndIsReportedUntilItIsMended(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.hear(map[string]string{"orders": "{shards: 2}"})
	r.hear(map[string]string{"orders": "{shards: 5000}", "mails": "{shards: 0}"})
	r.is("broken documents", 2, 0, "mails", "orders")
	if _, served := r.serves["mails"]; served {
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
	r.removed = "orders"
	r.reap(t.Context())
	if len(r.retired) > 0 {
		t.Fatal("a topic that has a document ended")
	}
	r.hear(nil)
	r.is("its document is gone", 2, 0)
	r.reap(t.Context())
	if fmt.Sprint(r.retired) != "[orders]" || r.topics["orders"] != nil {
		t.Errorf("retired %v, serves %v", r.retired, r.serves)
	}
}

// TestTheOperationsThatRedisDeniesAreOneProblem, and each is news once.
func TestTheOperationsThatRedisDeniesAreOneProblem(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	for _, operation := range []string{"topics", "source"} {
		if !r.deny(operation, true, errors.New("NOPERM "+operation)) || r.deny(operation, true, errors.New("NOPERM")) {
			t.Errorf("%s isn't news once", operation)
		}
	}
	var texts []string
	for _, p := range r.Problems() {
		if p.Kind == problem.RedisRefuses {
			texts = append(texts, p.Text)
		}
	}
	if len(texts) != 1 || !strings.HasPrefix(texts[0], "source denied: NOPERM") ||
		!strings.Contains(texts[0], "; topics denied: NOPERM") {
		t.Errorf("problems: %q", texts)
	}
	if !r.deny("topics", false, nil) || r.deny("topics", false, nil) {
		t.Error("its end isn't news once")
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
	own := r.faults.errors["mails"]
	r.startKept(t.Context(), parsed("mails", "{shards: -1}"))
	if r.faults.errors["mails"] != own {
		t.Errorf("the error of mails is %q, want the source's: %q", r.faults.errors["mails"], own)
	}
	r.startKept(t.Context(), parsed("mails", "{shards: 7}"))
	if in := r.topics["mails"]; r.serves["mails"].Shards != 7 || in.orphan {
		t.Errorf("mails, whose document is broken: %+v", in)
	}
	r.startKept(t.Context(), parsed("bills", "{shards: 1}"))
	if in := r.topics["bills"]; in == nil || !in.orphan {
		t.Errorf("bills, which has no document: %+v", in)
	}
	r.startKept(t.Context(), parsed("notes", "{shards: -1}"))
	if r.topics["notes"] != nil || r.faults.errors["notes"] == "" {
		t.Errorf("notes, whose kept document is broken: %q", r.faults.errors["notes"])
	}
	r.hear(map[string]string{"orders": "{shards: 2}"})
	if r.faults.errors["notes"] == "" {
		t.Error("the error of what Redis keeps went with a snapshot of the source")
	}
}

// TestWhoMayTakeATopic: files take nothing from other scanners that live, and nothing
// from Consul at all. Consul waits until the last scanner with a file is gone.
func TestWhoMayTakeATopic(t *testing.T) {
	t.Parallel()
	const consul, other, older = "consul:duefleet", "consul:other", ""
	for _, c := range []struct {
		source, recorded string
		others           []string
		may              bool
	}{
		{config.FileSource, "", nil, true},
		{config.FileSource, "", []string{config.FileSource}, true},
		{config.FileSource, "", []string{consul}, false},
		{config.FileSource, "", []string{config.FileSource, older}, false},
		{config.FileSource, consul, nil, false},
		{consul, "", []string{config.FileSource, older}, true},
		{consul, config.FileSource, nil, true},
		{consul, config.FileSource, []string{consul, older}, true},
		{consul, config.FileSource, []string{consul, config.FileSource}, false},
		{consul, other, nil, false},
	} {
		var others []balance.Member
		for _, source := range c.others {
			others = append(others, balance.Member{Source: source})
		}
		if got := mayTake(c.source, c.recorded, others); got != c.may {
			t.Errorf("%s takes from %q beside %q: %v, want %v", c.source, c.recorded, c.others, got, c.may)
		}
	}
}
