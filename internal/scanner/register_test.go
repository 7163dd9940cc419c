package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// slowNote holds up the first note on its way to Consul.
type slowNote struct {
	*consul.Client
	first   atomic.Bool
	begun   chan struct{}
	letGo   chan struct{}
	written atomic.Int64
}

func (s *slowNote) WriteStatus(ctx context.Context, instance string, note []byte) error {
	if s.first.CompareAndSwap(false, true) {
		close(s.begun)
		<-s.letGo
	}
	defer s.written.Add(1)
	return s.Client.WriteStatus(ctx, instance, note)
}

func TestTheNewestNoteIsWhatConsulKeeps(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "rate: 1")}, nil)
	addr, prefix := servertest.Consul(t)
	client, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	l.ok(err)
	slow := &slowNote{Client: client, begun: make(chan struct{}), letGo: make(chan struct{})}
	l.registration = &registration{
		register: slow, instance: "lone", metrics: l.metrics, log: l.log, back: make(chan struct{}, 1), notes: make(chan []byte, 1),
	}
	l.reloader.report = l.registration.report
	l.start()
	wait.Closed(t, "the first note to be written", slow.begun)
	l.write(map[string]string{"orders": declaring("orders", "rate: 2")})
	wait.For(t, "the second document to be applied", func() bool { return l.served("orders").topic.settings().Rate == 2 })
	close(slow.letGo)
	wait.For(t, "two notes", func() bool { return slow.written.Load() >= 2 })
	index, _, _ := l.reloader.state()
	want := fmt.Sprintf(`"config_applied_index":%d,`, index)
	anyone, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	l.ok(err)
	note, _, err := anyone.KV().Get(prefix+"/status/lone/config", nil)
	l.ok(err)
	if note == nil || !strings.Contains(string(note.Value), want) {
		t.Errorf("Consul keeps %+v, want %s", note, want)
	}
}

// An agent takes out a member whose check fails for long, or forgets it when it is
// set up anew.
func TestAMemberComesBackIntoTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	addr, prefix := servertest.Consul(t)
	register, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		t.Fatal(err)
	}
	entries := func() (ids []string) {
		all, err := client.Agent().ServicesWithFilterOpts("", (&api.QueryOptions{}).WithContext(wait.Context(t)))
		if err != nil {
			t.Fatal(err)
		}
		for id, entry := range all {
			if entry.Meta["prefix"] == prefix {
				ids = append(ids, id)
			}
		}
		return ids
	}
	f.register = register
	stop, ended := f.start("first", f.redis, f.broker, wait.Hang)
	wait.For(t, "the member to be in the catalog", func() bool { return len(entries()) == 1 })
	if err := client.Agent().ServiceDeregister(entries()[0]); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the member to be back", func() bool { return len(entries()) == 1 })
	stop()
	wait.Closed(t, "the scanner to end", ended)
	if left := entries(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
