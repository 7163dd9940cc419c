package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestABrokenDocumentAffectsOnlyItself: a broken document that a client of Consul wrote is
// an error of its topic only, and the other topics are served.
func TestABrokenDocumentAffectsOnlyItself(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Consul(t)
	kept := &http.Transport{}
	t.Cleanup(kept.CloseIdleConnections)
	anyone, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: kept}})
	if err != nil {
		t.Fatal(err)
	}
	for topic, doc := range map[string]string{
		"good": "shards: 8", "bad": "tick: 1s\nshards: 0", "bad/name": "shards: 8", "empty/": "",
		"huge": strings.Repeat("[", 500_000), "tags": "!!!!!!", "lost": "",
	} {
		if _, err := anyone.KV().Put(&api.KVPair{Key: prefix + "/topics/" + topic, Value: []byte(doc)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := topicconfig.Open(config.Consul{Addr: addr, Prefix: prefix}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"good":     "",
		"bad":      "bad:2: shards: must be 1 to 4096; got 0",
		"bad/name": "bad/name: topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 8 bytes with '/' at byte 3",
		"tags":     "tags:1: must be keys with values; got a tag, which is not supported",
		"lost":     "lost:1: is empty; must be keys with values, or {} for a topic with every default",
		"huge":     "huge: not valid YAML: more than 4096 lines, brackets and other marks",
	}
	s := firstSnapshot(t, c)
	list, err := c.List(t.Context())
	if s.Err != nil || err != nil || len(s.Documents) != len(want) || len(list) != len(want) {
		t.Fatalf("got %d documents and %v, %d of the list and %v, want %d", len(s.Documents), s.Err, len(list), err,
			len(want))
	}
	for _, doc := range list {
		wantDocument(t, doc, want[doc.Name])
		wantDocument(t, s.Documents[doc.Name], want[doc.Name])
		if read, there, err := c.Read(t.Context(), doc.Name); err != nil || !there || read.Index != doc.Index {
			t.Errorf("read %s: got %+v, %v, %v", doc.Name, read, there, err)
		}
	}
	if shards := s.Documents["good"].Topic.Shards; shards != 8 {
		t.Errorf("the good one has %d shards, want 8", shards)
	}
	if _, there, err := c.Read(t.Context(), "none"); there || err != nil {
		t.Errorf("read what isn't there: got %v, %v", there, err)
	}
}

// firstSnapshot returns the first snapshot of a watch.
func firstSnapshot(t *testing.T, s config.Source) config.Snapshot {
	t.Helper()
	ctx, stop := context.WithCancel(check.Context(t))
	defer stop()
	var first config.Snapshot
	if err := s.Watch(ctx, func(now config.Snapshot) { first = now; stop() }); err != nil {
		t.Fatal(err)
	}
	return first
}

func wantDocument(t *testing.T, doc config.Document, want string) {
	t.Helper()
	got := ""
	if doc.Err != nil {
		got = doc.Err.Error()
	}
	if got != want {
		t.Errorf("topic %s: got %q, want %q", doc.Name, got, want)
	}
}

// TestAnUnreachableConsulIsNoDocuments: no document looks deleted, and the error says what
// to check.
func TestAnUnreachableConsulIsNoDocuments(t *testing.T) {
	t.Parallel()
	c, err := topicconfig.Open(config.Consul{Addr: "127.0.0.1:1", Prefix: "duefleet"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := firstSnapshot(t, c)
	if s.Err == nil || s.Documents != nil || !strings.Contains(s.Err.Error(),
		"; check that the server runs there, and consul.addr") {
		t.Errorf("got %+v", s)
	}
	if list, err := c.List(t.Context()); err == nil || len(list) > 0 {
		t.Errorf("got %v, %v", list, err)
	}
	if advice := advice(s.Err); advice != "" {
		t.Errorf("the advice is written twice: %s", advice)
	}
}
