package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// expecting is a fleet whose scanners only check the identity of the data.
type expecting struct {
	t      *testing.T
	prefix string
	rdb    redis.UniversalClient
	kept   *consul.Client
	values *api.KV
	key    string // in Consul
}

func newExpecting(t *testing.T) *expecting {
	t.Helper()
	redisAddr, prefix := servertest.Redis(t)
	addr, folder := servertest.Consul(t)
	kept, err := consul.New(consul.Config{Addr: addr, Prefix: folder, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	anyone := fixture.Consul(t, addr)
	return &expecting{t: t, prefix: prefix, rdb: fixture.Client(t, redisAddr), kept: kept, values: anyone.KV(),
		key: folder + "/identity/" + prefix}
}

// scanner returns the check of a scanner that starts. kept is nil without Consul.
func (e *expecting) scanner(kept Identities) *identity {
	return &identity{registry: storeOf(e.t, e.rdb, e.prefix).Registry(), kept: kept, fleet: e.prefix, lost: func() {},
		log: slog.New(slog.DiscardHandler)}
}

// looks makes one check at each scanner, and compares what they find with want: "" if
// Redis has the data, else a part of the text.
func (e *expecting) looks(what, want string, scanners ...*identity) {
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
	store := storeOf(e.t, e.rdb, e.prefix)
	found, err := store.Registry().Identity(e.t.Context())
	check.OK(e.t, err)
	id, err = admin.DataLoss{Expected: []string{lost}, Found: found}.Accept(e.t.Context(), store)
	check.OK(e.t, err)
	return id
}

// TestALossIsSeenWithConsul: scanners that start together agree on one identity. A Redis
// without it is a problem, also for scanners that start later, and none of them makes
// another identity. It ends when somebody accepts the data, or restores it.
func TestALossIsSeenWithConsul(t *testing.T) {
	t.Parallel()
	e := newExpecting(t)
	fleet := []*identity{e.scanner(e.kept), e.scanner(e.kept), e.scanner(e.kept), e.scanner(e.kept)}
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
	quiet := func(what string, k *identity) {
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
	store := func(user string) *shard.Store {
		options := *e.rdb.(*redis.Client).Options()
		options.Username, options.Password = user, "secret"
		rdb := redis.NewClient(&options)
		t.Cleanup(func() { _ = rdb.Close() })
		return storeOf(t, rdb, e.prefix)
	}
	check.OK(t, e.rdb.Do(t.Context(), "ACL", "SETUSER", e.prefix, "on", ">secret", "~*", "+@all", "-hget").Err())
	t.Cleanup(func() { _ = e.rdb.Do(context.WithoutCancel(t.Context()), "ACL", "DELUSER", e.prefix).Err() })
	refused := e.scanner(e.kept)
	refused.registry = store(e.prefix).Registry()
	quiet("without the right", refused)
}

// TestALossIsSeenWithoutConsul: Redis is emptied while a scanner with a file runs. Status,
// metrics and /readyz report it, the scanner stays ready, and it stores the documents of
// all topics again. It ends when somebody accepts the data.
func TestALossIsSeenWithoutConsul(t *testing.T) {
	t.Parallel()
	l := loneOn(t, servertest.OwnRedis(t))
	names := []string{"orders", "mails", "bills", "calls"}
	topics := map[string]string{}
	for _, name := range names {
		topics[name] = declaring(name)
	}
	l.write(topics)
	l.identity.every = 10 * time.Millisecond
	l.start()
	kept := func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			raw, err := l.topic(name).Document(t.Context())
			listed, _ := l.topic(name).Known(t.Context())
			return err != nil || raw == nil || !listed
		})
	}
	first := func() string { return l.rdb.HGet(t.Context(), "duefleet:identity", "value").Val() }
	check.Until(t, "an identity, and all documents", func() bool { return first() != "" && kept() })
	expected := first()
	check.OK(l.t, l.rdb.FlushAll(t.Context()).Err())
	var found problem.Problem
	check.Until(t, "the problem", func() bool { found = l.problem(problem.DataLost, ""); return found.Kind != "" })
	if found.Severity != problem.Broken || found.Facts["expected"] != expected || found.Facts["found"] != "" ||
		found.Since.IsZero() {
		t.Errorf("%+v", found)
	}
	check.Until(t, "all documents again", kept)
	l.sees(true, "data_lost")
	check.Until(t, "the scanner to be ready", func() bool {
		status, body := l.ask("/readyz")
		return status == http.StatusOK && strings.Contains(body, "data: down (optional)")
	})
	if id := first(); id != "" {
		t.Errorf("redis got the identity %s, and %s is expected", id, expected)
	}
	loss, err := admin.ReadDataLoss(t.Context(), l.store)
	if err != nil || fmt.Sprint(loss.Expected) != "["+expected+"]" || loss.Found.ID != "" {
		t.Errorf("got %+v, %v", loss, err)
	}
	accepted, err := loss.Accept(t.Context(), l.store)
	check.OK(l.t, err)
	check.Until(t, "its end", func() bool { return l.problem(problem.DataLost, "").Kind == "" })
	l.sees(false, "data_lost")
	if id := first(); id != accepted+" replaces "+expected {
		t.Errorf("redis has %q", id)
	}
}

// TestARestartOfRedisIsNoLoss: Redis restarts with its data.
func TestARestartOfRedisIsNoLoss(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	l := loneOn(t, server)
	l.identity.every = 10 * time.Millisecond
	l.start()
	id := func() string { return l.rdb.HGet(t.Context(), "duefleet:identity", "value").Val() }
	check.Until(t, "an identity", func() bool { return id() != "" })
	first := id()
	check.OK(l.t, server.Kill())
	check.OK(l.t, server.Restart(t.Context()))
	gets := func() (n int) {
		stats := registry.ParseInfo(l.rdb.Info(t.Context(), "commandstats").Val())
		_, _ = fmt.Sscanf(stats["cmdstat_hget"], "calls=%d", &n)
		return n
	}
	check.Until(t, "checks after the restart", func() bool { return gets() > 20 })
	l.sees(false, "data_lost")
	if told := l.said.Lines("redis lost the data"); id() != first || len(told) > 0 {
		t.Errorf("the identity is %q, and was %q; the log tells %q", id(), first, told)
	}
}
