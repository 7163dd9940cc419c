package documents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
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
	addr, prefix := servertest.Consul(t)
	client, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	r := newReloading(t)
	slow := &slowNote{Client: client, begun: make(chan struct{}), letGo: make(chan struct{})}
	r.registration.cfg.Register, r.registration.cfg.Instance = slow, "lone"
	check.Background(t, "the notes", func(ctx context.Context) error { r.registration.write(ctx); return nil })
	for index, text := range []string{"{rate: 1}", "{rate: 2}"} {
		doc := map[string]config.Document{"orders": parsed("orders", text)}
		r.apply(t.Context(), config.Snapshot{Documents: doc, Index: uint64(index + 7)})
		check.Closed(t, "the first note to be written", slow.begun)
	}
	close(slow.letGo)
	check.Until(t, "two notes", func() bool { return slow.written.Load() >= 2 })
	want := `"config_applied_index":8,`
	anyone := fixture.Consul(t, addr)
	note, _, err := anyone.KV().Get(prefix+"/status/lone/config", nil)
	check.OK(t, err)
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
	anyone := fixture.Consul(t, addr)
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
	away := func(context.Context) ([]balance.Member, error) { return nil, errors.New("redis is away") }
	r := newRegistration(Config{Register: client, Fleet: away})
	if swept, err := r.sweepNow(t.Context(), now); err == nil || len(swept) > 0 {
		t.Errorf("without Redis %q are swept, %v", swept, err)
	}
	r.cfg.Fleet = func(context.Context) ([]balance.Member, error) { return []balance.Member{{Instance: "member"}}, nil }
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
		r := newRegistration(Config{Register: book, Log: slog.New(slog.DiscardHandler)})
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
