package scanner

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

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
	l.identity.Every = 10 * time.Millisecond
	l.start()
	kept := func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			raw, err := l.store.Registry().Document(t.Context(), name)
			known, _ := l.store.Registry().Topics(t.Context())
			return err != nil || raw == nil || !slices.Contains(known, name)
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
	l.identity.Every = 10 * time.Millisecond
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
