package consul

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
)

// at is when changes are made.
var at = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// commit makes a change that must succeed, and returns the document's index.
func commit(t *testing.T, c *Client, h History, index uint64, change Change) uint64 {
	t.Helper()
	written, ok, err := c.Commit(t.Context(), h, index, change)
	if !ok || err != nil || written == 0 && !change.Removed {
		t.Fatalf("got %d, %v, %v", written, ok, err)
	}
	return written
}

func history(t *testing.T, c *Client) History {
	t.Helper()
	h, err := c.History(t.Context(), "orders")
	check.OK(t, err)
	return h
}

// TestDocumentAndHistoryAreWrittenBothOrNeither: a client with an outdated document or
// history writes neither of them.
func TestDocumentAndHistoryAreWrittenBothOrNeither(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	none := history(t, c)
	if none.Index != 0 || len(none.Changes) != 0 {
		t.Fatalf("before any change: got %+v", none)
	}
	index := commit(t, c, none, 0, Change{At: at, By: "me@host", Verb: "set", Document: []byte("shards: 8")})
	one := history(t, c)
	want := []Change{{Number: 1, At: at, By: "me@host", Verb: "set", Document: []byte("shards: 8")}}
	if !reflect.DeepEqual(one.Changes, want) || one.Index != index {
		t.Fatalf("got %+v, want %+v at %d", one, want, index)
	}
	stays := func(what string, h History, index uint64, change Change) {
		t.Helper()
		if _, ok, err := c.Commit(t.Context(), h, index, change); ok || err != nil {
			t.Errorf("%s: got %v, %v", what, ok, err)
		}
		d, _, err := c.Get(t.Context(), "orders")
		if now := history(t, c); err != nil || string(d.Raw) != "shards: 8" || !reflect.DeepEqual(now, one) {
			t.Errorf("%s: left are %q, %v, %+v", what, d.Raw, err, now)
		}
	}
	nine := Change{By: "me@host", Document: []byte("shards: 9")}
	stays("make what is there", one, 0, nine)
	stays("another document", one, index-1, nine)
	stays("a history that was none", none, index, nine)
	stays("remove another document", one, index-1, Change{Removed: true})
	stays("remove with a history that was none", none, index, Change{Removed: true})
	commit(t, c, one, index, Change{By: "me@host", Verb: "rm", Removed: true})
	if _, there, err := c.Get(t.Context(), "orders"); there || err != nil {
		t.Errorf("after its removal: %v, %v", there, err)
	}
	if h := history(t, c); len(h.Changes) != 2 || !h.Changes[1].Removed || h.Changes[1].Number != 2 {
		t.Errorf("after its removal: got %+v", h)
	}
	if _, _, err := c.Commit(t.Context(), History{Topic: "a/b"}, 0, nine); err == nil {
		t.Error("a name with a slash was written")
	}
}

// TestAllHistoriesAreReadTogether: a removed topic has a history, too. One that can't be read hides
// no other.
func TestAllHistoriesAreReadTogether(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	none, err := c.Histories(t.Context())
	if err != nil || len(none) > 0 {
		t.Fatalf("without any: got %v, %v", none, err)
	}
	index := commit(t, c, history(t, c), 0, Change{At: at, By: "me@host", Verb: "set", Document: []byte("shards: 8")})
	commit(t, c, history(t, c), index, Change{At: at, By: "me@host", Verb: "rm", Removed: true})
	_, err = c.client.KV().Put(&api.KVPair{Key: c.historyKey("broken"), Value: []byte("no history")}, nil)
	check.OK(t, err)
	all, err := c.Histories(t.Context())
	check.OK(t, err)
	if got := all["orders"]; len(all) != 2 || got.Err != nil || !reflect.DeepEqual(got.History, history(t, c)) {
		t.Errorf("got %+v", all)
	}
	if err := all["broken"].Err; err == nil || !strings.Contains(err.Error(), "history of topic broken can't be read") {
		t.Errorf("got %v", err)
	}
}

// TestAWatchHearsNothingOfHistories: a list doesn't show them either. A change of a
// document with its history wakes the watch once.
func TestAWatchHearsNothingOfHistories(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	w := watching(t, c)
	next(t, w)
	commit(t, c, History{Topic: "orders"}, 0, Change{Document: []byte("shards: 8")})
	if s := next(t, w); len(s.Documents) != 1 || rawOf(s, "orders") != "shards: 8" {
		t.Errorf("got %+v", s)
	}
	put(t, c, "history/mails", "{}")
	put(t, c, "topics/mails", "{}")
	if s := next(t, w); len(s.Documents) != 2 || rawOf(s, "mails") != "{}" {
		t.Errorf("got %+v", s)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestWhatAnotherToolDidIsSeen: whenever the document differs from the newest change.
func TestWhatAnotherToolDidIsSeen(t *testing.T) {
	t.Parallel()
	set, rm := Change{Number: 7, By: "me@host", Document: []byte("a")}, Change{Number: 7, By: "me@host", Removed: true}
	for name, c := range map[string]struct {
		kept     []Change
		document string
		there    bool
		seen     *Change
	}{
		"nothing":          {},
		"first":            {document: "a", there: true, seen: &Change{Number: 1, Document: []byte("a")}},
		"first, and empty": {there: true, seen: &Change{Number: 1, Document: []byte{}}},
		"as it was left":   {kept: []Change{set}, document: "a", there: true},
		"written": {kept: []Change{set}, document: "b", there: true,
			seen: &Change{Number: 8, Document: []byte("b")}},
		"removed":           {kept: []Change{set}, seen: &Change{Number: 8, Document: []byte{}, Removed: true}},
		"removed as it was": {kept: []Change{rm}},
		"made after it": {kept: []Change{rm}, document: "a", there: true,
			seen: &Change{Number: 8, Document: []byte("a")}},
		"empty after removal": {kept: []Change{rm}, there: true, seen: &Change{Number: 8, Document: []byte{}}},
		"too large to tell":   {kept: []Change{{Number: 7, Dropped: true}}, document: "b", there: true},
	} {
		want := History{Topic: "orders", Changes: c.kept}
		if c.seen != nil {
			want.Changes = append(append([]Change{}, c.kept...), *c.seen)
		}
		if got := (History{Topic: "orders", Changes: c.kept}).Seen([]byte(c.document), c.there); !reflect.DeepEqual(got,
			want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// TestAHistoryIsBounded: a history has at most 20 documents. Even with large documents it
// fits into one transaction together with the current document.
func TestAHistoryIsBounded(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	h, index := History{Topic: "orders"}, uint64(0)
	for range 25 {
		index = commit(t, c, h, index, Change{By: "me@host", Document: []byte("{}")})
		h = history(t, c)
	}
	if len(h.Changes) != 20 || h.Changes[0].Number != 6 || h.Changes[19].Number != 25 {
		t.Errorf("got %d changes, from %d", len(h.Changes), h.Changes[0].Number)
	}
	random := rand.NewChaCha8([32]byte{1})
	large := func(size int) []byte {
		document := make([]byte, size)
		_, _ = random.Read(document) // never fails
		return document
	}
	var kept []byte
	for range 3 {
		kept = large(100 << 10)
		index = commit(t, c, h, index, Change{Document: kept})
		h = history(t, c)
	}
	if newest, _ := h.Newest(); len(h.Changes) != 1 || !bytes.Equal(newest.Document, kept) || newest.Number != 28 {
		t.Errorf("of large documents: got %d changes", len(h.Changes))
	}
	commit(t, c, h, index, Change{Document: large(300 << 10)})
	if newest, _ := history(t, c).Newest(); !newest.Dropped || len(newest.Document) > 0 || newest.Number != 29 {
		t.Errorf("of one that is too large: got %+v", newest)
	}
}

// TestABrokenHistoryIsNamed: the error has the command that removes it.
func TestABrokenHistoryIsNamed(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	put(t, c, "history/orders", "nonsense")
	if _, err := c.History(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(),
		"consul kv delete "+c.prefix+"/history/orders") {
		t.Errorf("got %v", err)
	}
}
