package scanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// slowNote delays the first note on its way to Consul.
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
		register: slow, instance: "lone", metrics: l.metrics, log: l.log, back: wake.NewSignal(),
		notes: make(chan note, 1),
		fleet: func(ctx context.Context) ([]balance.Member, error) { return balance.Members(ctx, l.store) },
	}
	l.start()
	wait.Closed(t, "the first note to be written", slow.begun)
	l.write(map[string]string{"orders": declaring("orders", "rate: 2")})
	wait.For(t, "the second document to be applied",
		func() bool { return l.served("orders").topic.inForce.settings().Rate == 2 })
	close(slow.letGo)
	wait.For(t, "two notes", func() bool { return slow.written.Load() >= 2 })
	index, _, _ := l.reloader.state()
	want := fmt.Sprintf(`"config_applied_index":%d,`, index)
	anyone, err := api.NewClient(&api.Config{Address: addr,
		HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	l.ok(err)
	note, _, err := anyone.KV().Get(prefix+"/status/lone/config", nil)
	l.ok(err)
	if note == nil || !strings.Contains(string(note.Value), want) {
		t.Errorf("Consul keeps %+v, want %s", note, want)
	}
}

// TestTheNotesOfTheDeadAreSwept: a sweep removes notes that nobody renews, of instances
// that the fleet doesn't know. Other values and other keys stay.
func TestTheNotesOfTheDeadAreSwept(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Consul(t)
	client, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	anyone, err := api.NewClient(&api.Config{Address: addr,
		HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	check.OK(t, err)
	now := time.Now()
	at := func(ago time.Duration) string {
		return fmt.Sprintf(`{"time": %q}`, now.Add(-ago).UTC().Format(time.RFC3339Nano))
	}
	old := at(2 * staleAfter)
	for key, text := range map[string]string{
		"status/dead/config": old, "status/dead too/config": old, "status/member/config": old,
		"status/other/config": at(staleAfter - time.Minute),
		"status/dead/more":    old, "status/dead/more/config": old, "status/odd/config": "{}", "status/odder/config": "[",
		"topics/orders": "{}",
	} {
		_, err := anyone.KV().Put(&api.KVPair{Key: prefix + "/" + key, Value: []byte(text)}, nil)
		check.OK(t, err)
	}
	r := registration{register: client, fleet: func(context.Context) ([]balance.Member, error) {
		return nil,
			errors.New("redis is away")
	}}
	if swept, err := r.sweepNow(t.Context(), now); err == nil || len(swept) > 0 {
		t.Errorf("without Redis %q are swept, %v", swept, err)
	}
	r.fleet = func(context.Context) ([]balance.Member, error) { return []balance.Member{{Instance: "member"}}, nil }
	swept, err := r.sweepNow(t.Context(), now)
	if slices.Sort(swept); err != nil || fmt.Sprintf("%q", swept) != `["dead" "dead too"]` {
		t.Errorf("swept %q, %v", swept, err)
	}
	left, _, err := anyone.KV().Keys(prefix+"/", "", nil)
	check.OK(t, err)
	want := "status/dead/more status/dead/more/config status/member/config status/odd/config status/odder/config " +
		"status/other/config topics/orders"
	if got := strings.ReplaceAll(strings.Join(left, " "), prefix+"/", ""); got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}

// notebook passes on the notes that are written.
type notebook struct {
	*consul.Client
	written chan string
}

func (n notebook) WriteStatus(_ context.Context, _ string, text []byte) error {
	n.written <- string(text)
	return nil
}

// TestANoteIsRenewed: so others know that its writer lives.
func TestANoteIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		book := notebook{written: make(chan string, 1)}
		r := &registration{register: book, log: slog.New(slog.DiscardHandler), notes: make(chan note, 1),
			back: wake.NewSignal()}
		go r.write(ctx)
		r.notes <- note{Applied: 7}
		var last note
		for range 3 {
			var n note
			if err := json.Unmarshal([]byte(<-book.written), &n); err != nil || n.Applied != 7 {
				t.Fatalf("got %+v, %v", n, err)
			}
			if age := n.Time.Sub(last.Time); !last.Time.IsZero() && age != renewInterval {
				t.Errorf("renewed after %s", age)
			}
			last = n
		}
	})
}

// TestAnotherAtAScannersAddressIsNotReadyForIt: the check of a killed scanner fails,
// although another one at its address is ready.
func TestAnotherAtAScannersAddressIsNotReadyForIt(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	wait.For(t, "the scanner to be ready", func() bool { status, _ := l.ask("/readyz"); return status == http.StatusOK })
	if status, body := l.ask("/readyz?format=json&instance=lone"); status != http.StatusOK ||
		!strings.Contains(body, `"instance":"lone"`) {
		t.Errorf("asked for itself it is %d: %s", status, body)
	}
	addr, prefix := servertest.Consul(t)
	client, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	l.ok(err)
	anyone, err := api.NewClient(&api.Config{Address: addr,
		HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	l.ok(err)
	for instance, want := range map[string]string{"lone": api.HealthPassing, "killed & gone": api.HealthCritical} {
		l.ok(client.Register(t.Context(), instance, l.admin.Addr()))
		wait.For(t, "the check of "+instance+" to be "+want, func() bool {
			status, info, err := anyone.Agent().AgentHealthServiceByID(consul.ServiceName + "-" + l.admin.Addr())
			l.ok(err)
			said := len(info.Checks) == 1 && strings.Contains(info.Checks[0].Output, "instance: down (required): this is lone")
			return status == want && said == (want == api.HealthCritical)
		})
		l.ok(client.Deregister(t.Context(), l.admin.Addr()))
	}
}

// An agent removes a member whose check fails for long, and forgets it when the agent is
// set up again.
func TestAMemberComesBackIntoTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	addr, prefix := servertest.Consul(t)
	register, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	client, err := api.NewClient(&api.Config{Address: addr,
		HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	check.OK(t, err)
	entries := func() (ids []string) {
		all, err := client.Agent().ServicesWithFilterOpts("", (&api.QueryOptions{}).WithContext(wait.Context(t)))
		check.OK(t, err)
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
	check.OK(t, client.Agent().ServiceDeregister(entries()[0]))
	wait.For(t, "the member to be back", func() bool { return len(entries()) == 1 })
	stop()
	wait.Closed(t, "the scanner to end", ended)
	if left := entries(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
