package shard

import (
	"maps"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestADocumentHasOneSource: a source is recorded if there is none, or if the caller knows
// the recorded one. Only a document of the recorded source is saved. The removal of a topic
// removes both.
func TestADocumentHasOneSource(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	bills := c.store.Topic("bills")
	take := func(source string, replace map[string]string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, r := range c.store.TakeSources(c.t.Context(), source, replace) {
			check.OK(c.t, r.Err)
			got[name] = r.Source
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s takes %v: %v, want %v", source, replace, got, want)
		}
	}
	keep := func(topic *Topic, source, doc, want string) {
		t.Helper()
		check.OK(c.t, topic.KeepDocument(c.t.Context(), source, []byte(doc)))
		raw, err := topic.Document(c.t.Context())
		check.OK(c.t, err)
		check.Equal(t, "the document after "+source, string(raw), want)
	}
	one, both := c.Name(), map[string]string{c.Name(): "", "bills": ""}
	take("file", map[string]string{one: "file"}, map[string]string{one: ""}) // it reads alone
	take("file", map[string]string{one: ""}, map[string]string{one: "file"})
	take("consul:a", both, map[string]string{one: "file", "bills": "consul:a"})
	keep(bills, "consul:a", "rate: 1", "rate: 1")
	keep(bills, "file", "rate: 2", "rate: 1")
	keep(c.Topic, "consul:a", "rate: 3", "")
	take("consul:a", map[string]string{one: "file"}, map[string]string{one: "consul:a"})
	keep(c.Topic, "consul:a", "rate: 3", "rate: 3")
	keep(c.Topic, "", "rate: 4", "rate: 4") // a caller that doesn't tell its source
	source, err := c.Source(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "the source", source, "consul:a")
	gone, err := c.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "removed", gone, true)
	check.OK(c.t, c.Forget(c.t.Context(), c.p.Gone()))
	source, err = c.Source(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "the source of a removed topic", source, "")
}
