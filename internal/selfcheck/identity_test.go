package selfcheck

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// expecting is a fleet whose scanners only check the identity of the data.
type expecting struct {
	t      *testing.T
	prefix string
	rdb    redis.UniversalClient
	store  *shard.Store
	kept   *consul.Client
	values *api.KV
	key    string // in Consul
}

func newExpecting(t *testing.T) *expecting {
	t.Helper()
	r := fixture.New(t)
	addr, folder := servertest.Consul(t)
	kept, err := consul.New(consul.Config{Addr: addr, Prefix: folder, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	return &expecting{t: t, prefix: r.Prefix, rdb: r.Client, store: r.Store, kept: kept,
		values: fixture.Consul(t, addr).KV(), key: folder + "/identity/" + r.Prefix}
}

// scanner returns the check of a scanner that starts. kept is nil without Consul.
func (e *expecting) scanner(kept Identities) *Identity {
	return &Identity{Registry: e.store.Registry(), Kept: kept, Fleet: e.prefix, Lost: func() {},
		Log: slog.New(slog.DiscardHandler)}
}

// looks makes one check at each scanner, and compares what they find with want: "" if
// Redis has the data, else a part of the text.
func (e *expecting) looks(what, want string, scanners ...*Identity) {
	e.t.Helper()
	for i, k := range scanners {
		k.asked = time.Time{}
		err := k.check(e.t.Context())
		p, text := k.found.Load(), ""
		if p != nil {
			text = p.Text
		}
		if err != nil || (text == "") != (want == "") || !strings.Contains(text, want) {
			e.t.Errorf("%s: scanner %d finds %q, %v; want %q", what, i, text, err, want)
		}
	}
}

// has returns the identity in Redis and the one in Consul, "" where there is none.
func (e *expecting) has() (redis, consul string) {
	e.t.Helper()
	redis = e.rdb.HGet(e.t.Context(), e.prefix+":identity", "value").Val()
	pair, _, err := e.values.Get(e.key, nil)
	check.OK(e.t, err)
	if pair != nil {
		consul = string(pair.Value)
	}
	return redis, consul
}

// lose removes the identity from Redis, as an empty server has none.
func (e *expecting) lose() {
	e.t.Helper()
	check.OK(e.t, e.rdb.Del(e.t.Context(), e.prefix+":identity").Err())
}

// accept gives up the data "lost", as the verb does.
func (e *expecting) accept(lost string) (id string) {
	e.t.Helper()
	found, err := e.store.Registry().Identity(e.t.Context())
	check.OK(e.t, err)
	id, err = admin.DataLoss{Expected: []string{lost}, Found: found}.Accept(e.t.Context(), e.store)
	check.OK(e.t, err)
	return id
}

// TestALossIsSeenWithConsul: scanners that start together agree on one identity. A Redis
// without it is a problem, also for scanners that start later, and none of them makes
// another identity. It ends when somebody accepts the data, or restores it.
func TestALossIsSeenWithConsul(t *testing.T) {
	t.Parallel()
	e := newExpecting(t)
	fleet := []*Identity{e.scanner(e.kept), e.scanner(e.kept), e.scanner(e.kept), e.scanner(e.kept)}
	var together errgroup.Group
	for _, k := range fleet {
		together.Go(func() error { return k.check(t.Context()) })
	}
	check.OK(t, together.Wait())
	e.looks("after the start", "", fleet...)
	first, kept := e.has()
	if first == "" || kept != first {
		t.Fatalf("redis has %q, consul has %q", first, kept)
	}
	e.lose()
	fleet[3] = e.scanner(e.kept)
	e.looks("after the loss", first+" is expected, and the data that is there has no identity", fleet...)
	if there, kept := e.has(); there != "" || kept != first {
		t.Errorf("after the loss: redis has %q, consul has %q", there, kept)
	}
	check.OK(t, e.rdb.HSet(t.Context(), e.prefix+":identity", "value", "other").Err())
	fleet[2] = e.scanner(e.kept)
	e.looks("with other data", first+" is expected, and the data that is there is other", fleet...)
	check.OK(t, e.rdb.HSet(t.Context(), e.prefix+":identity", "value", first).Err())
	e.looks("with restored data", "", fleet...)
	e.lose()
	e.looks("after another loss", first, fleet[:2]...)
	second := e.accept(first)
	e.looks("accepted", "", fleet...)
	e.looks("accepted, at a scanner that starts", "", e.scanner(e.kept))
	if there, kept := e.has(); there != second+" replaces "+first || kept != second {
		t.Errorf("accepted: redis has %q, consul has %q, want %q", there, kept, second)
	}
}

// TestAConsulWithoutTheIdentityGetsIt: it was deleted, or Consul was replaced. It gets the
// one that Redis has; but not while a scanner expects another one.
func TestAConsulWithoutTheIdentityGetsIt(t *testing.T) {
	t.Parallel()
	e := newExpecting(t)
	k := e.scanner(e.kept)
	forget := func() {
		t.Helper()
		_, err := e.values.Delete(e.key, nil)
		check.OK(t, err)
	}
	e.looks("at the start", "", k)
	first, _ := e.has()
	forget()
	e.looks("without the key", "", k)
	if _, kept := e.has(); kept != first {
		t.Errorf("consul has %q, want %q", kept, first)
	}
	forget()
	check.OK(t, e.rdb.HSet(t.Context(), e.prefix+":identity", "value", "other").Err())
	e.looks("with other data", first+" is expected", k)
	if _, kept := e.has(); kept != "" {
		t.Errorf("consul has %q, which this scanner doesn't expect", kept)
	}
}

// TestWhatIsNotKnownIsNoProblem: while Consul is away, a scanner that starts neither makes
// an identity nor finds a problem. A running one knows what it expects. A user without the
// right to read the identity finds nothing.
func TestWhatIsNotKnownIsNoProblem(t *testing.T) {
	t.Parallel()
	e := newExpecting(t)
	away, err := consul.New(consul.Config{Addr: "127.0.0.1:1", Prefix: "away", Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	k := e.scanner(away)
	quiet := func(what string, k *Identity) {
		t.Helper()
		if err := k.check(t.Context()); err == nil || k.found.Load() != nil {
			t.Errorf("%s: %v, found %v", what, err, k.found.Load())
		}
	}
	quiet("a new redis", k)
	if there, _ := e.has(); there != "" {
		t.Errorf("redis has %q, and consul may expect another one", there)
	}
	e.looks("consul is there", "", e.scanner(e.kept))
	first, _ := e.has()
	quiet("a redis with data", k)
	e.lose()
	quiet("at a start", e.scanner(away))
	if err := k.check(t.Context()); err == nil || k.found.Load() == nil || k.expected != first {
		t.Errorf("a scanner that saw the data finds %v, %v", k.found.Load(), err)
	}
	check.OK(t, e.rdb.Do(t.Context(), "ACL", "SETUSER", e.prefix, "on", ">secret", "~*", "+@all", "-hget").Err())
	t.Cleanup(func() { _ = e.rdb.Do(context.WithoutCancel(t.Context()), "ACL", "DELUSER", e.prefix).Err() })
	refused := e.scanner(e.kept)
	options := *e.rdb.(*redis.Client).Options()
	options.Username, options.Password = e.prefix, "secret"
	rdb := redis.NewClient(&options)
	t.Cleanup(func() { _ = rdb.Close() })
	other, err := shard.New(rdb, e.prefix)
	check.OK(t, err)
	refused.Registry = other.Registry()
	quiet("without the right", refused)
}
