package registry_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestADocumentHasOneSource: a source is recorded if there is none, or if the caller knows
// the recorded one. Only a document of the recorded source is saved. The removal of a topic
// removes both.
func TestADocumentHasOneSource(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	one, bills := c.topic.Name(), "bills"
	both := map[string]string{one: "", bills: ""}
	take := func(source string, replace map[string]string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, r := range c.TakeSources(c.t.Context(), source, replace) {
			check.OK(c.t, r.Err)
			got[name] = r.Source
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s takes %v: %v, want %v", source, replace, got, want)
		}
	}
	keep := func(topic, source, doc, want string) {
		t.Helper()
		check.OK(c.t, c.KeepDocument(c.t.Context(), topic, source, []byte(doc)))
		raw, err := c.Document(c.t.Context(), topic)
		check.OK(c.t, err)
		check.Equal(t, "the document after "+source, string(raw), want)
	}
	check.Equal(t, "the source before", c.Sources(c.t.Context(), []string{one})[one], registry.SourceRecord{})
	take("file", map[string]string{one: "file"}, map[string]string{one: ""}) // it isn't the present one
	take("file", map[string]string{one: ""}, map[string]string{one: "file"})
	take("consul:a", both, map[string]string{one: "file", "bills": "consul:a"})
	keep(bills, "consul:a", "rate: 1", "rate: 1")
	keep(bills, "file", "rate: 2", "rate: 1")
	keep(one, "consul:a", "rate: 3", "")
	take("consul:a", map[string]string{one: "file"}, map[string]string{one: "consul:a"})
	keep(one, "consul:a", "rate: 3", "rate: 3")
	keep(one, "", "rate: 4", "rate: 4") // a caller that doesn't tell its source
	source, err := c.Source(c.t.Context(), one)
	check.OK(c.t, err)
	check.Equal(t, "the source", source, "consul:a")
	read := c.Sources(c.t.Context(), []string{one, bills, "none"})
	want := map[string]registry.SourceRecord{one: {Source: source}, bills: {Source: source}, "none": {}}
	if !maps.Equal(read, want) {
		t.Errorf("sources %v, want %v", read, want)
	}
	gone, err := c.topic.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "removed", gone, true)
	check.OK(c.t, c.topic.Forget(c.t.Context(), c.p.Gone()))
	source, err = c.Source(c.t.Context(), one)
	check.OK(c.t, err)
	check.Equal(t, "the source of a removed topic", source, "")
}

// TestEarlierDocumentsOfAFileAreKept: ten of them, each once, the latest first. Consul has a history
// of its own.
func TestEarlierDocumentsOfAFileAreKept(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	one := c.topic.Name()
	documents := func() string {
		t.Helper()
		all, err := c.Documents(c.t.Context(), one)
		check.OK(t, err)
		return string(bytes.Join(all, []byte(" ")))
	}
	keep := func(source string, all ...string) {
		t.Helper()
		for _, document := range all {
			check.OK(t, c.KeepDocument(c.t.Context(), one, source, []byte(document)))
		}
	}
	check.Equal(t, "before any", documents(), "")
	c.TakeSources(c.t.Context(), "consul:a", map[string]string{one: ""})
	keep("consul:a", "a", "b")
	check.Equal(t, "with Consul", documents(), "b")
	c.TakeSources(c.t.Context(), "file", map[string]string{one: "consul:a"})
	keep("file", "c", "c", "b", "c")
	check.Equal(t, "with a file", documents(), "c b c")
	keep("file", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	check.Equal(t, "with many", documents(), "9 8 7 6 5 4 3 2 1 c b")
	_, err := c.topic.Remove(c.t.Context(), c.p)
	check.OK(t, err)
	check.OK(t, c.topic.Forget(c.t.Context(), c.p.Gone()))
	check.Equal(t, "of a removed topic", documents(), "")
}

// TestASourceThatCannotBeReadIsNotNone: a client that Redis doesn't let in knows no source, and tries
// again later.
func TestASourceThatCannotBeReadIsNotNone(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, Username: "nobody", Password: "wrong"})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, prefix)
	check.OK(t, err)
	for topic, r := range store.Registry().Sources(t.Context(), []string{"orders", "bills"}) {
		if !redis.HasErrorPrefix(r.Err, "WRONGPASS") || r.Refused {
			t.Errorf("%s: %+v", topic, r)
		}
	}
}
