package consul

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

func newClient(t *testing.T, addr, prefix string) *Client {
	t.Helper()
	c, err := New(Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	c.pace.limit = check.Hang
	return c
}

func sharedConsul(t *testing.T) *Client {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	return newClient(t, addr, prefix)
}

// put writes a value without the checks of Put, as any client of Consul may.
func put(t *testing.T, c *Client, key, doc string) {
	t.Helper()
	pair := &api.KVPair{Key: c.prefix + "/" + key, Value: []byte(doc)}
	_, err := c.client.KV().Put(pair, nil)
	check.OK(t, err)
}

// watching runs a client's Watch for the time of the test.
func watching(t *testing.T, c *Client) <-chan Snapshot {
	t.Helper()
	snapshots := make(chan Snapshot, 1000)
	check.Background(t, "Watch", func(ctx context.Context) error {
		return c.Watch(ctx, func(s Snapshot) { snapshots <- s })
	})
	return snapshots
}

// next returns the snapshot that must come.
func next(t *testing.T, snapshots <-chan Snapshot) Snapshot {
	t.Helper()
	return check.Receive(t, "a snapshot", snapshots)
}

// rawOf returns a topic's document as text; "" if there is none.
func rawOf(s Snapshot, topic string) string { return string(s.Documents[topic].Raw) }

// until receives snapshots until one is wanted.
func until(t *testing.T, snapshots <-chan Snapshot, what string, wanted func(Snapshot) bool) {
	t.Helper()
	for !wanted(check.Receive(t, "a snapshot with "+what, snapshots)) {
	}
}

func TestWatchFollowsChanges(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	w := watching(t, c)
	if first := next(t, w); first.Err != nil || len(first.Documents) != 0 || first.Documents == nil {
		t.Fatalf("got %+v", first)
	}
	put(t, c, "topics/orders", "shards: 8")
	made := next(t, w)
	if made.Err != nil || rawOf(made, "orders") != "shards: 8" {
		t.Fatalf("got %+v", made)
	}
	put(t, c, "topics/orders", `{"shards": 9}`)
	changed := next(t, w)
	if rawOf(changed, "orders") != `{"shards": 9}` || changed.Index <= made.Index ||
		changed.Documents["orders"].Index <= made.Documents["orders"].Index {
		t.Errorf("got %+v after %+v", changed, made)
	}
	put(t, c, "topics/mails", "{}")
	if s := next(t, w); len(s.Documents) != 2 || rawOf(s, "mails") != "{}" {
		t.Errorf("got %+v", s)
	}
	if ok, err := c.Delete(t.Context(), "orders", changed.Documents["orders"].Index); !ok || err != nil {
		t.Fatalf("got %v, %v", ok, err)
	}
	if s := next(t, w); len(s.Documents) != 1 || rawOf(s, "mails") != "{}" {
		t.Errorf("got %+v", s)
	}
}

func TestFoldersAreNoDocuments(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	put(t, c, "topics/good", "shards: 8")
	put(t, c, "topics/not/checked", "x")
	put(t, c, "topics/folder/", "")
	put(t, c, "topics/lost", "")
	s := next(t, watching(t, c))
	if s.Err != nil || len(s.Documents) != 3 || rawOf(s, "good") != "shards: 8" || rawOf(s, "not/checked") != "x" {
		t.Fatalf("got %+v", s)
	}
	if lost, there := s.Documents["lost"]; !there || len(lost.Raw) != 0 || lost.Topic != "lost" || lost.Index == 0 {
		t.Errorf("a key without a value: got %+v, %v", lost, there)
	}
}

func TestPutIsCheckAndSet(t *testing.T) {
	t.Parallel()
	c, ctx := sharedConsul(t), t.Context()
	if _, ok, err := c.Get(ctx, "orders"); ok || err != nil {
		t.Fatalf("got %v, %v", ok, err)
	}
	if ok, err := c.Put(ctx, "orders", []byte("shards: 8"), 5); ok || err != nil {
		t.Errorf("put over nothing: got %v, %v", ok, err)
	}
	if ok, err := c.Put(ctx, "orders", []byte("shards: 8"), 0); !ok || err != nil {
		t.Fatalf("make: got %v, %v", ok, err)
	}
	if ok, err := c.Put(ctx, "orders", []byte("shards: 9"), 0); ok || err != nil {
		t.Errorf("make twice: got %v, %v", ok, err)
	}
	d, ok, err := c.Get(ctx, "orders")
	if err != nil || !ok || string(d.Raw) != "shards: 8" || d.Topic != "orders" {
		t.Fatalf("got %+v, %v, %v", d, ok, err)
	}
	if ok, err := c.Put(ctx, "orders", []byte("shards: 9"), d.Index); !ok || err != nil {
		t.Errorf("change: got %v, %v", ok, err)
	}
	if ok, err := c.Put(ctx, "orders", []byte("shards: 10"), d.Index); ok || err != nil {
		t.Errorf("change what changed meanwhile: got %v, %v", ok, err)
	}
	if ok, err := c.Delete(ctx, "orders", d.Index); ok || err != nil {
		t.Errorf("delete what changed meanwhile: got %v, %v", ok, err)
	}
	if ok, err := c.Delete(ctx, "orders", 0); ok || err == nil {
		t.Errorf("delete without an index: got %v, %v", ok, err)
	}
	if d, _, err := c.Get(ctx, "orders"); err != nil || string(d.Raw) != "shards: 9" {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestATopicsNameIsCheckedBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	c, ctx := sharedConsul(t), t.Context()
	if _, err := c.Put(ctx, "a/b", []byte("{}"), 0); err == nil {
		t.Error("a name with a slash was written")
	}
	if list, err := c.List(ctx); len(list) != 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
}

func TestListIsByName(t *testing.T) {
	t.Parallel()
	c, ctx := sharedConsul(t), t.Context()
	for _, topic := range []string{"b", "c", "a"} {
		if ok, err := c.Put(ctx, topic, []byte("{}"), 0); !ok || err != nil {
			t.Fatalf("got %v, %v", ok, err)
		}
	}
	list, err := c.List(ctx)
	var names []string
	for _, d := range list {
		names = append(names, d.Topic)
	}
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("got %v, %v", names, err)
	}
}

func TestNotesAreLeftAndRemoved(t *testing.T) {
	t.Parallel()
	c, ctx := sharedConsul(t), t.Context()
	check.OK(t, c.WriteStatus(ctx, "host-1", []byte("bad")))
	check.OK(t, c.WriteStatus(ctx, "host-2", []byte("fine")))
	pair, _, err := c.client.KV().Get(c.prefix+"/status/host-1/config", nil)
	if err != nil || pair == nil || string(pair.Value) != "bad" {
		t.Errorf("got %v, %v", pair, err)
	}
	if err := c.DeleteStatus(ctx, "host-1"); err != nil {
		t.Error(err)
	}
	left, _, err := c.client.KV().Keys(c.prefix+"/status/", "", nil)
	if err != nil || !slices.Equal(left, []string{c.prefix + "/status/host-2/config"}) {
		t.Errorf("got %q, %v", left, err)
	}
}

// Without the folder's key a watch of an empty prefix wakes at every write.
func TestWatchSleepsThroughOtherWrites(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	c.pace.wait = 10 * time.Minute // so that no query ends because its wait is over
	asked := countRequests(c)
	w := watching(t, c)
	next(t, w)
	for began, i := time.Now(), 0; time.Since(began) < 2*time.Second || i < 100; i++ {
		put(t, c, "elsewhere/x", time.Now().String())
	}
	// One query at the start, one that saw the new folder, one that waits.
	if n := asked.Load(); n > 3 {
		t.Errorf("%d queries while nothing changed", n)
	}
	put(t, c, "topics/orders", "")
	if s := next(t, w); len(s.Documents) != 1 {
		t.Errorf("got %+v", s)
	}
}

// countRequests counts the watch's queries.
func countRequests(c *Client) *atomic.Int64 {
	counter := &requestCounter{RoundTripper: c.http.Transport}
	c.http.Transport = counter
	return &counter.asked
}

type requestCounter struct {
	http.RoundTripper
	asked atomic.Int64
}

func (c *requestCounter) CloseIdleConnections() {
	(&http.Client{Transport: c.RoundTripper}).CloseIdleConnections()
}

func (c *requestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("recurse") {
		c.asked.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// played is a Consul without a network, so a request takes no time on synctest's clock.
type played http.HandlerFunc

func (p played) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	p(answer, r)
	return answer.Result(), nil
}

func ownConsul(t *testing.T) *servers.Consul {
	t.Helper()
	servertest.Need(t, "consul")
	server, err := servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	return server
}

func TestAnOutageIsToldOnceAndEnds(t *testing.T) {
	t.Parallel()
	server := ownConsul(t)
	c := newClient(t, server.Addr(), "duefleet")
	put(t, c, "topics/orders", "shards: 8")
	w := watching(t, c)
	if s := next(t, w); rawOf(s, "orders") != "shards: 8" {
		t.Fatalf("got %+v", s)
	}
	check.OK(t, server.Kill())
	if s := next(t, w); s.Err == nil || s.Documents != nil {
		t.Fatalf("got %+v", s)
	}
	if _, _, err := c.Get(t.Context(), "orders"); err == nil {
		t.Error("read of a dead agent is no error")
	}
	check.OK(t, server.Restart(t.Context()))
	if s := next(t, w); s.Err != nil || rawOf(s, "orders") != "shards: 8" {
		t.Errorf("the outage was told more than once, or never ended: got %+v", s)
	}
	put(t, c, "topics/orders", "shards: 9")
	until(t, w, "9 shards", func(s Snapshot) bool { return rawOf(s, "orders") == "shards: 9" })
}

func TestAFrozenAgentIsUnreachable(t *testing.T) {
	t.Parallel()
	server := ownConsul(t)
	c := newClient(t, server.Addr(), "duefleet")
	c.pace.wait, c.pace.limit = 500*time.Millisecond, 2*time.Second
	put(t, c, "topics/orders", "shards: 8")
	w := watching(t, c)
	good := func(s Snapshot) bool { return s.Err == nil && rawOf(s, "orders") == "shards: 8" }
	until(t, w, "the document", good)
	check.OK(t, server.Pause())
	until(t, w, "an error", func(s Snapshot) bool { return s.Err != nil })
	check.OK(t, server.Resume())
	until(t, w, "the document", good)
}

// The indexes of a new, empty Consul at the same address begin below the old ones. A query
// that waits for a higher index would hang there.
func TestAConsulThatForgotEverything(t *testing.T) {
	t.Parallel()
	server := ownConsul(t)
	c := newClient(t, server.Addr(), "duefleet")
	c.pace.wait = 10 * time.Minute // longer than the test waits
	for i := range 50 {
		put(t, c, "topics/orders", fmt.Sprintf("shards: %d", i+1))
	}
	w := watching(t, c)
	until(t, w, "50 shards", func(s Snapshot) bool { return rawOf(s, "orders") == "shards: 50" })
	check.OK(t, server.Kill())
	_, port, err := net.SplitHostPort(server.Addr())
	check.OK(t, err)
	var n int
	_, err = fmt.Sscan(port, &n)
	check.OK(t, err)
	// The new server may run before the watch notices that the old one is gone.
	fresh, err := servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: t.TempDir(), Port: n})
	check.OK(t, err)
	t.Cleanup(func() { _ = fresh.Kill() })
	until(t, w, "no documents", func(s Snapshot) bool { return s.Err == nil && len(s.Documents) == 0 })
	put(t, c, "topics/orders", "shards: 7")
	until(t, w, "7 shards", func(s Snapshot) bool { return rawOf(s, "orders") == "shards: 7" })
}

// An agent doesn't give these answers on request, so a fake server does.
func TestWatchNeverRunsHot(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"index 0": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("[]"))
		},
		"index that always falls": func(w http.ResponseWriter, r *http.Request) {
			index := "10"
			if r.URL.Query().Get("index") == "10" {
				index = "5"
			}
			w.Header().Set("X-Consul-Index", index)
			_, _ = w.Write([]byte("[]"))
		},
		"too many requests": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "limit reached", http.StatusTooManyRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, "127.0.0.1:8500", "duefleet")
				c.http.Transport = played(answer)
				asked := countRequests(c)
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				check.OK(t, c.Watch(ctx, func(Snapshot) {}))
				if n := asked.Load(); n < 2 || n > 22 {
					t.Errorf("%d queries in two seconds", n)
				}
			})
		})
	}
}

// These are the answers of an agent of 1.22 to a token that may not read some topics, or
// any. No topic may look deleted.
func TestTopicsOutOfTheTokensSightAreAnError(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"some": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Results-Filtered-By-Acls", "true")
			_, _ = w.Write([]byte(`[{"Key":"duefleet/topics/a","Value":null,"ModifyIndex":22}]`))
		},
		"all": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("recurse") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			http.Error(w, `token lacks permission 'key:read' on "duefleet/topics/"`, http.StatusForbidden)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Consul-Index", "24")
				w.Header().Set("X-Consul-LastContact", "0")
				answer(w, r)
			}))
			t.Cleanup(server.Close)
			c := newClient(t, server.URL, "duefleet")
			if s := next(t, watching(t, c)); s.Err == nil || !strings.Contains(s.Err.Error(), "token") {
				t.Errorf("got %+v", s)
			}
			if list, err := c.List(t.Context()); err == nil {
				t.Errorf("got %v", list)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	var ready atomic.Int64
	admin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			ready.Add(1)
		}
	}))
	t.Cleanup(admin.Close)
	_, port, err := net.SplitHostPort(admin.Listener.Addr().String())
	check.OK(t, err)
	id := "duefleet-scanner-127.0.0.1:" + port
	for i, addr := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port, "[::]:" + port} {
		instance := fmt.Sprint(c.prefix, i) // each takes over from the one before
		check.OK(t, c.Register(t.Context(), instance, addr))
		service, _, err := c.client.Agent().Service(id, nil)
		if err != nil || service.Service != "duefleet-scanner" || service.Address != "127.0.0.1" ||
			fmt.Sprint(service.Port) != port ||
			service.Meta["instance"] != instance {
			t.Errorf("%s: got %+v, %v", addr, service, err)
		}
	}
	check.Progress(t, "a passing check", func() int { return int(ready.Load()) }, func() bool {
		status, _, err := c.client.Agent().AgentHealthServiceByID(id)
		return err == nil && status == api.HealthPassing && ready.Load() > 0
	})
	check.OK(t, c.Register(t.Context(), fmt.Sprint(c.prefix, 3), "127.0.0.1:"+port))
	if status, _, err := c.client.Agent().AgentHealthServiceByID(id); err != nil || status != api.HealthPassing {
		t.Errorf("registered once more: the check is %s, %v", status, err)
	}
	for range 2 {
		if err := c.Deregister(context.Background(), "127.0.0.1:"+port); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := c.client.Agent().Service(id, nil); err == nil {
		t.Error("the service is still there")
	}
}
