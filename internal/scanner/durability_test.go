package scanner

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// loneOn returns a scanner on a Redis of the test's own.
func loneOn(t *testing.T, server *servers.Redis) *lone {
	t.Helper()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	check.OK(l.t, l.rdb.Close())
	l.rdb = redis.NewUniversalClient(servertest.RedisOptions(server.Addr()))
	var err error
	l.Scanner, err = New(Config{
		Settings: l.cfg.Settings, Source: config.NewFile(l.path, nil), Store: storeOf(t, l.rdb, "duefleet"), Instance: "lone",
		Log: slog.New(slog.NewTextHandler(l.said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	check.OK(l.t, err)
	return l
}

// TestARedisThatIsDownAtStartIsTold: the log has one warning with the address that
// refuses connections, and /readyz shows it too. Once Redis is up, the scanner is ready.
func TestARedisThatIsDownAtStartIsTold(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	l := loneOn(t, server)
	check.OK(l.t, server.Kill())
	l.run()
	const warning = "redis does not serve this scanner"
	refused := server.Addr() + ": connect: connection refused"
	check.Until(t, "the warning", func() bool {
		return len(l.said.Lines("scanner started")) > 0 && len(l.said.Lines(warning)) > 0
	})
	status, body := l.ask("/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "not reached yet") ||
		!strings.Contains(body, refused) {
		t.Errorf("/readyz: %d, %q", status, body)
	}
	check.OK(l.t, server.Restart(t.Context()))
	check.Until(t, "the scanner to be ready", func() bool { status, _ = l.ask("/readyz"); return status == http.StatusOK })
	if lines := l.said.Lines(warning); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
		!strings.Contains(lines[0], refused) {
		t.Errorf("the log tells %q, want one warning", lines)
	}
	if len(l.said.Lines("redis serves this scanner again")) == 0 {
		t.Error("the log does not tell that Redis is there")
	}
}

// TestARedisThatLosesTasksIsTold: Redis evicts and keeps no append-only file. The log has
// one warning; /readyz, status and metrics report it while the scanner stays ready. The
// reports end when Redis is set right. If the scanner may not ask, it reports nothing.
func TestARedisThatLosesTasksIsTold(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
	l := loneOn(t, server)
	l.durability.Every = 10 * time.Millisecond
	l.start()
	told := func(reasons ...string) bool {
		status, body := l.ask("/readyz")
		s, err := admin.ReadStatus(t.Context(), l.store, "")
		check.OK(l.t, err)
		for _, text := range []string{body, fmt.Sprint(s.Problems)} {
			for _, reason := range []string{"allkeys-lru", "no append-only file"} {
				want := strings.Contains(strings.Join(reasons, " "), reason)
				if strings.Contains(text, reason) != want {
					return false
				}
			}
		}
		return status == http.StatusOK && l.value("duefleet_redis_unsafe") == float64(len(reasons))
	}
	check.Until(t, "both to be told", func() bool { return told("allkeys-lru", "no append-only file") })
	const warning = "redis is set to lose tasks"
	if lines := l.said.Lines(warning); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
		!strings.Contains(lines[0], "allkeys-lru") {
		t.Errorf("the log tells %q, want one warning", lines)
	}
	check.OK(l.t, l.rdb.ConfigSet(t.Context(), "appendonly", "yes").Err())
	check.Until(t, "one to be told", func() bool { return told("allkeys-lru") })
	check.OK(l.t, l.rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	check.Until(t, "none to be told", func() bool { return told() })
	if lines := l.said.Lines("redis is set to keep tasks again"); len(lines) != 1 || len(l.said.Lines(warning)) != 2 {
		t.Errorf("the log tells %q and %q", lines, l.said.Lines(warning))
	}
	check.OK(l.t, l.rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	check.Until(t, "the log to say that nothing is known",
		func() bool { return len(l.said.Lines("level=DEBUG msg=\"not known whether redis keeps")) == 1 })
	check.Until(t, "more looks", func() bool {
		refused, err := l.rdb.ACLLog(t.Context(), 1).Result()
		check.OK(l.t, err)
		return len(refused) > 0 && refused[0].Object == "info" && refused[0].Count > 2
	})
	if lines := l.said.Lines("not known whether redis keeps"); len(lines) != 1 || !told() {
		t.Errorf("the log tells %q", lines)
	}
}
