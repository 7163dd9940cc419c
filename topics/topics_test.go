package topics_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/topics"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// place is a folder in Consul, with a client of this package and `scanner topic`'s view
// of it.
type place struct {
	t       *testing.T
	client  *topics.Client
	scanner topicconfig.Documents
	kv      *api.KV
	prefix  string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	client, err := topics.New(topics.Config{Addr: addr, Prefix: prefix, Author: "shop"})
	check.OK(t, err)
	scanner, err := topicconfig.Open(config.Consul{Addr: addr, Prefix: prefix}, nil)
	check.OK(t, err)
	kept := &http.Transport{}
	t.Cleanup(kept.CloseIdleConnections)
	anyone, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: kept}})
	check.OK(t, err)
	return &place{t, client, scanner, anyone.KV(), prefix}
}

// puts writes a document without any check, as another client of Consul may.
func (p *place) puts(topic, doc string) {
	p.t.Helper()
	_, err := p.kv.Put(&api.KVPair{Key: p.prefix + "/topics/" + topic, Value: []byte(doc)}, nil)
	check.OK(p.t, err)
}

// good ends the test on an error, or if the document isn't this one.
func (p *place) good(d topics.Document, err error, raw string) topics.Document {
	p.t.Helper()
	if err != nil || string(d.Raw) != raw || d.Err != nil || d.Index == 0 {
		p.t.Fatalf("got %+v and %v, want %q", d, err, raw)
	}
	return d
}

func (p *place) is(err, kind error, words string) {
	p.t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		p.t.Errorf("got %v, want %v with %q", err, kind, words)
	}
}

// TestAProgramMakesAndChangesTopics, and `scanner topic` reads its changes with author,
// verb and reason in the history.
func TestAProgramMakesAndChangesTopics(t *testing.T) {
	t.Parallel()
	p, ctx := newPlace(t), t.Context()
	made, err := p.client.Create(ctx, "orders", topics.Change{
		Settings: map[string]string{"shards": "8", "declare.queue": "orders.due"}, Reason: "a new shop",
	})
	made = p.good(made, err, "shards: 8\ndeclare:\n  queue: orders.due\n")
	for key, want := range map[string]string{"shards": "8", "declare.queue_type": "quorum", "exchange": "orders"} {
		if got := made.Settings[key]; got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	_, err = p.client.Create(ctx, "orders", topics.Change{})
	p.is(err, task.ErrExists, "topic orders has a document already")

	p.puts("orders", "# ours\nshards: 8 # as in May\nrate: 5\n")
	set, err := p.client.Set(ctx, "orders", topics.Change{
		Settings: map[string]string{"rate": "", "shards": "16"}, Reason: "more",
	})
	set = p.good(set, err, "# ours\nshards: 16 # as in May\n")
	got, err := p.client.Get(ctx, "orders")
	if got = p.good(got, err, string(set.Raw)); got.Index != set.Index {
		t.Errorf("index %d, want %d", got.Index, set.Index)
	}
	same, err := p.client.Set(ctx, "orders", topics.Change{Settings: map[string]string{"shards": "16"}})
	if same = p.good(same, err, string(set.Raw)); same.Index != set.Index {
		t.Error("an unchanged document was written")
	}
	h, _, err := p.scanner.History(ctx, "orders")
	if err != nil || len(h.Changes) != 3 {
		t.Fatalf("history: %+v, %v", h, err)
	}
	for i, want := range []string{"shop create a new shop", "  ", "shop set more"} {
		if got := h.Changes[i].By + " " + h.Changes[i].Verb + " " + h.Changes[i].Reason; got != want {
			t.Errorf("change %d: %q, want %q", i+1, got, want)
		}
	}
	replaced, err := p.client.Set(ctx, "orders", topics.Change{Settings: map[string]string{"rate": "7"}, Replace: true})
	p.good(replaced, err, "rate: 7\n")
	p.puts("broken", "shards: many\n")
	list, err := p.client.List(ctx)
	if err != nil || len(list) != 2 || list[1].Topic != "orders" || list[1].Settings["rate"] != "7" {
		t.Fatalf("list: %+v, %v", list, err)
	}
	if broken := list[0]; broken.Topic != "broken" || broken.Err == nil || broken.Settings != nil {
		t.Errorf("broken: %+v", broken)
	}
}

// TestNothingIsWrittenThatIsWrong: mistakes, mistyped names, and documents that somebody
// else wrote.
func TestNothingIsWrittenThatIsWrong(t *testing.T) {
	t.Parallel()
	p, ctx := newPlace(t), t.Context()
	made, err := p.client.Set(ctx, "orders", topics.Change{Settings: map[string]string{"rate": "5"}})
	made = p.good(made, err, "rate: 5\n")
	for words, change := range map[string]topics.Change{
		"shards: must be":            {Settings: map[string]string{"shards": "0"}},
		"did you mean rate?":         {Settings: map[string]string{"rat": "1"}},
		"must have keys without =":   {Settings: map[string]string{"rate=1": "1"}},
		"reason: must be":            {Settings: map[string]string{"rate": "6"}, Reason: strings.Repeat("x", 513)},
		"changed by somebody else":   {Settings: map[string]string{"rate": "6"}, Index: made.Index + 1},
		"backoff.min: must be at mo": {Settings: map[string]string{"backoff.min": "1h"}},
	} {
		if _, err := p.client.Set(ctx, "orders", change); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	_, err = p.client.Set(ctx, "orders", topics.Change{Index: made.Index + 1})
	p.is(err, topics.ErrChanged, "topic orders")
	_, err = p.client.Set(ctx, "order", topics.Change{})
	p.is(err, task.ErrNotFound, "did you mean orders?")
	_, err = p.client.Set(ctx, "bills", topics.Change{Index: 7})
	p.is(err, task.ErrNotFound, "topic bills has no document")
	_, err = p.client.Get(ctx, "bills")
	p.is(err, task.ErrNotFound, "topic bills has no document")
	_, err = p.client.Create(ctx, "no topic", topics.Change{})
	p.is(err, task.ErrInvalid, "topic")
	_, err = p.client.Get(ctx, "no topic")
	p.is(err, task.ErrInvalid, "topic")
	now, err := p.client.Get(ctx, "orders")
	if now = p.good(now, err, "rate: 5\n"); now.Index != made.Index {
		t.Error("the document was written")
	}
	set, err := p.client.Set(ctx, "orders", topics.Change{Settings: map[string]string{"rate": "6"}, Index: made.Index})
	p.good(set, err, "rate: 6\n")
	created, err := p.client.Create(ctx, "order", topics.Change{})
	p.good(created, err, "{}\n")
}

// TestTopicsThatDoNotGoTogetherAreNotWritten: a queue that another topic's intake needs
// alone, and a circle. Documents in conflict can still change other settings.
func TestTopicsThatDoNotGoTogetherAreNotWritten(t *testing.T) {
	t.Parallel()
	p, ctx := newPlace(t), t.Context()
	p.puts("orders", "{exchange: x, intake: {exchange: y, queue: q}}")
	for words, settings := range map[string]map[string]string{
		"topics would share queue q, which an intake needs alone: it is intake.queue of bills and intake.queue of orders": {
			"intake.exchange": "z", "intake.queue": "q"},
		"tasks would go round in a circle: bills delivers to exchange y": {"exchange": "y", "intake.exchange": "x"},
	} {
		_, err := p.client.Create(ctx, "bills", topics.Change{Settings: settings})
		_, missing := p.client.Get(ctx, "bills")
		if err == nil || !strings.Contains(err.Error(), words) || !errors.Is(missing, task.ErrNotFound) {
			t.Errorf("got %v and %v, want %q", err, missing, words)
		}
	}
	p.puts("bills", "{intake: {exchange: z, queue: q}}")
	set, err := p.client.Set(ctx, "bills", topics.Change{Settings: map[string]string{"rate": "5"}})
	if err != nil || set.Settings["rate"] != "5" {
		t.Errorf("got %+v, %v", set, err)
	}
	if _, err = p.client.Set(ctx, "bills", topics.Change{Settings: map[string]string{"intake.queue": "p"}}); err != nil {
		t.Error(err)
	}
}

// TestAClientNeedsAConsul: New fails without an address. If Consul is away, each call
// fails.
func TestAClientNeedsAConsul(t *testing.T) {
	t.Parallel()
	for words, cfg := range map[string]topics.Config{
		"Config.Addr must name":         {},
		"Config.Author: must be valid ": {Addr: "127.0.0.1:1", Author: strings.Repeat("x", 129)},
	} {
		if _, err := topics.New(cfg); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	client, err := topics.New(topics.Config{Addr: "127.0.0.1:1"})
	check.OK(t, err)
	_, listed := client.List(t.Context())
	_, set := client.Set(t.Context(), "orders", topics.Change{})
	for _, err := range []error{listed, set} {
		if err == nil || errors.Is(err, task.ErrNotFound) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
	}
}
