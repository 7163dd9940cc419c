package scanner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// spread stores n tasks in each of some shards, of four, due at once.
func (l *lone) spread(n int, shards ...int) {
	l.t.Helper()
	topic := l.topic("orders")
	p := fixture.Placement(l.t, topic)
	for _, at := range shards {
		fixture.Store(l.t, topic, fixture.Entries(task.Now(), []byte{0}, fixture.Belonging(p, at, n)...)...)
	}
}

// spoil puts a string in the place of a shard's due tasks, and returns a function that
// removes the string.
func (l *lone) spoil(at int) (fix func()) {
	l.t.Helper()
	key := fmt.Sprintf("%s:due:{orders:%d}", l.cfg.Settings.Redis.Prefix, at)
	check.OK(l.t, l.rdb.Del(l.t.Context(), key).Err())
	check.OK(l.t, l.rdb.Set(l.t.Context(), key, "in the way", 0).Err())
	return func() { check.OK(l.t, l.rdb.Del(l.t.Context(), key).Err()) }
}

// ask returns the answer of the scanner's admin address.
func (l *lone) ask(path string) (status int, body string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+l.admin.Addr()+path, nil)
	check.OK(l.t, err)
	resp, err := http.DefaultClient.Do(req)
	check.OK(l.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check.OK(l.t, err)
	return resp.StatusCode, string(text)
}

// TestAShardThatCannotBeServedIsToldAndHoldsNoOtherUp: one of four shards has a key of
// the wrong type. The one worker goes on to the others, although a lease lasts for an
// hour. The log has one line. Metrics, readiness and status name the shard and count the
// others.
func TestAShardThatCannotBeServedIsToldAndHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4", "workers: 1", "tick: 20ms", "lease: 1h")},
		nil)
	l.start()
	fix := l.spoil(2)
	const n = 50
	for round := range 5 {
		l.spread(n, 0, 1, 3)
		check.Until(t, "the tasks of the other shards",
			func() bool { return l.value("duefleet_forwarded_total") == float64(3*n*(round+1)) })
	}
	check.Until(t, "claims of the shard to fail", func() bool { return l.value("duefleet_shard_errors_total") >= 10 })
	if lines := l.said.Lines("redis does not serve"); len(lines) != 1 || !strings.Contains(lines[0], "shard=2") ||
		!strings.Contains(lines[0], "WRONGTYPE") {
		t.Errorf("the log tells %q, want one line that names shard 2", lines)
	}
	status, body := l.ask("/readyz")
	if status != http.StatusOK || !strings.Contains(body,
		"shards: down (optional): topic orders: shard 2 not served by Redis") {
		t.Errorf("/readyz is %d: %s", status, body)
	}
	if _, body := l.ask("/metrics"); !strings.Contains(body, `duefleet_shard_errors_total{shard="2",topic="orders"}`) ||
		!strings.Contains(body, `duefleet_pending_tasks{shard="3",topic="orders"}`) ||
		strings.Contains(body, `duefleet_pending_tasks{shard="2",topic="orders"}`) {
		t.Errorf("/metrics:\n%s", body)
	}
	s, err := admin.ReadStatus(t.Context(), l.store, "")
	check.OK(l.t, err)
	orders := s.Topics[0]
	if len(orders.PerShard) != 3 || len(orders.Unreadable) != 1 || orders.Unreadable[0].Shard != 2 {
		t.Errorf("status: %+v", orders)
	}
	if notes := strings.Join(orders.Notes, "\n"); !strings.Contains(notes, "shard 2 can't be read") {
		t.Errorf("notes: %s", notes)
	}
	check.Until(t, "the scanner's own note", func() bool {
		s, err := admin.ReadStatus(t.Context(), l.store, "orders")
		check.OK(l.t, err)
		return strings.Contains(strings.Join(s.Topics[0].Notes, "\n"), "shard 2 not served by Redis")
	})
	fix()
	l.spread(n, 2)
	check.Until(t, "the tasks of the shard", func() bool { return l.value("duefleet_forwarded_total") == 16*n })
	if lines := l.said.Lines("redis serves this shard again"); len(lines) != 1 {
		t.Errorf("the log tells %q", lines)
	}
	if _, body := l.ask("/readyz"); !strings.Contains(body, "shards: ok") {
		t.Errorf("/readyz: %s", body)
	}
}

// TestStatusTellsOfOtherTopicsThanOneThatCannotBeRead: the placement of one topic is no
// hash.
func TestStatusTellsOfOtherTopicsThanOneThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	mails := b.topic.store.Store().Topic("mails")
	_, err := mails.Ensure(t.Context(), 1)
	check.OK(t, err)
	key := b.prefix + ":placement:{mails}"
	check.OK(t, errors.Join(b.rdb.Del(t.Context(), key).Err(), b.rdb.Set(t.Context(), key, "in the way",
		0).Err()))
	s, err := admin.ReadStatus(t.Context(), b.topic.store.Store(), "")
	if err != nil || len(s.Topics) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if notes := s.Topics[0].Notes; len(notes) != 1 || !strings.Contains(notes[0], "WRONGTYPE") {
		t.Errorf("notes of mails: %q", notes)
	}
	if s.Topics[1].Shards != 1 {
		t.Errorf("orders: %+v", s.Topics[1])
	}
	if _, err := admin.ReadStatus(t.Context(), b.topic.store.Store(), "mails"); err == nil {
		t.Error("the status of mails alone is no error")
	}
}

// TestAClaimThatRedisDoesNotTakeEndsAtOnce: a claim that was certainly not carried out
// isn't repeated until its lease would be over.
func TestAClaimThatRedisDoesNotTakeEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	for _, spoil := range []func() error{
		func() error { return b.rdb.Set(t.Context(), b.prefix+":due:{orders:0}", "in the way", 0).Err() },
		func() error { return b.rdb.Close() },
	} {
		check.OK(t, spoil())
		ended := make(chan error, 1)
		go func() {
			one := &claim{polling: b.topic.polling, request: b.newClaim(1)}
			one.send(context.Background(), 0, time.Now())
			ended <- one.err
		}()
		if err := check.Receive(t, "the claim to end", ended); err == nil {
			t.Error("a claim without an error")
		}
	}
}

// rightsNeededLater are rights that an idle scanner doesn't use, each with its purpose.
// Redis denies such a right only when it is used.
var rightsNeededLater = map[string]string{
	"+del": "a change of M", "+hincrby": "a change of M", "+smismember": "a change of M", "+zrange": "a change of M",
	"+sismember": "parking a run of a recurring task",
	"+pexpire":   "events of tasks", "+pttl": "events of tasks",
	"+zscore": "giving tasks back", "+exists": "zcard does the same with more commands",
	"+zcard": "orphaned tasks",
	"+eval":  "scripts that Redis has not heard of yet", "+hello": "the client does without",
	"+hgetall": "scanner doctor", "+info": "what is not known without", "+zrandmember": "scanner doctor",
	"+zscan": "scanner doctor",
}

// TestARightThatRedisDoesNotGiveIsNamed: a scanner that lacks one of the rights in
// deploy/redis is not ready. /readyz and the log name the right and the command that
// grants it.
func TestARightThatRedisDoesNotGiveIsNamed(t *testing.T) {
	t.Parallel()
	line, err := os.ReadFile(filepath.Join("..", "..", "deploy", "redis", "scanner.acl"))
	check.OK(t, err)
	words := strings.Fields(string(line))[2:]
	base := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	for _, right := range words {
		if rightsNeededLater[right] != "" || !strings.HasPrefix(right, "+") && !strings.HasPrefix(right, "&") {
			continue
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			l, all := base.without(t, words, right)
			if right == "+zmscore" || right == "+zrem" {
				storeOne(t, all)
			}
			name := "'" + strings.TrimPrefix(right, "+") + "'"
			if strings.HasPrefix(right, "&") {
				name = "channel"
			}
			check.Until(t, "/readyz and the log to name "+right, func() bool {
				_, body := l.ask("/readyz")
				return names(strings.Split(body, "\n"), "redis: down (required)", name) &&
					names(l.said.Lines("level=WARN"), "", name)
			})
		})
	}
}

// names reports whether a line names a right and the command that grants it.
func names(lines []string, prefix, right string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, prefix) && strings.Contains(line, right) &&
			strings.Contains(line, "grant it with ACL SETUSER")
	})
}

// without runs a scanner whose user has all rights except one, on its own keys, until the
// test ends. It also returns the topic orders for a user with all rights.
func (l *lone) without(t *testing.T, rights []string, right string) (*lone, *shard.Topic) {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	args := []any{"ACL", "SETUSER", prefix}
	for _, word := range rights {
		if word != right {
			args = append(args, strings.NewReplacer("PASSWORD", "secret", "duefleet:", prefix+":").Replace(word))
		}
	}
	own := &lone{t: t, said: &check.Log{}}
	check.OK(own.t, l.rdb.Do(t.Context(), args...).Err())
	t.Cleanup(func() { _ = l.rdb.Do(context.Background(), "ACL", "DELUSER", prefix).Err() })
	options := servertest.RedisOptions(addr)
	options.Username, options.Password = prefix, "secret"
	own.rdb = redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = own.rdb.Close() })
	cfg := *l.cfg.Settings
	cfg.Redis.Prefix, cfg.ShutdownTimeout = prefix, 100*time.Millisecond // the shutdown can't finish what Redis denies
	var err error
	own.Scanner, err = New(Config{
		Settings: &cfg, Source: config.NewFile(l.path, nil), Store: storeOf(t, own.rdb, prefix), Instance: "without",
		Log: slog.New(slog.NewTextHandler(own.said, nil)),
	})
	check.OK(own.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- own.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = check.Receive(t, "the scanner to end", ended) // in time or not
	})
	check.Until(t, "the scanner to run", func() bool { return len(own.said.Lines("scanner started")) > 0 })
	all, err := shard.New(l.rdb, prefix)
	check.OK(own.t, err)
	return own, all.Topic("orders")
}

// storeOne stores a task that is due.
func storeOne(t *testing.T, topic *shard.Topic) {
	t.Helper()
	var p shard.Placement
	check.Until(t, "the topic's placement", func() (there bool) {
		var err error
		p, err = topic.Placement(t.Context())
		return err == nil
	})
	fixture.Store(t, topic, fixture.Entries(task.Now(), []byte{0}, fmt.Sprint("o-", p.Epoch))...)
}

// noPermission is Redis's error for a missing right.
type noPermission struct{}

func (noPermission) Error() string { return "NOPERM this user has no permissions" }
func (noPermission) RedisError()   {}

func TestARefusalIsNewsWhenItBeginsAndWhenItEnds(t *testing.T) {
	t.Parallel()
	var r refusals
	wrong := errors.New("WRONGTYPE")
	claim := func(shard int) refusal { return refusal{shard, "claim"} }
	if !r.record(claim(3), true, wrong) || r.record(claim(3), true, wrong) {
		t.Error("a refusal that goes on is news, or one that begins is not")
	}
	if got := r.shards(4, time.Hour); got.denied || got.why != "WRONGTYPE" || !slices.Equal(got.numbers, []int{3}) {
		t.Errorf("%+v", got)
	}
	if got := r.shards(3, time.Hour); len(got.numbers) > 0 {
		t.Errorf("a shard that is no longer polled: %+v", got)
	}
	if got := r.shards(4, -1); len(got.numbers) > 0 {
		t.Errorf("a shard that others poll: %+v", got)
	}
	if !r.record(claim(3), true, wrong) {
		t.Error("a refusal that was forgotten is no news")
	}
	if r.recordDenied("settle", wrong) || r.denied() != "" {
		t.Errorf("no right is missing, and denied is %q", r.denied())
	}
	if !r.recordDenied("settle", noPermission{}) || !strings.HasPrefix(r.denied(), "settle denied: NOPERM") {
		t.Errorf("denied is %q", r.denied())
	}
	if got := r.shards(4, time.Hour); got.denied || strings.Contains(got.why, "NOPERM") {
		t.Errorf("a refusal of all shards is reported for single ones: %+v", got)
	}
	if !r.recordDenied("settle", nil) || r.recordDenied("settle", nil) || r.denied() != "" {
		t.Errorf("granted, and denied is %q", r.denied())
	}
	if !r.record(claim(3), false, nil) || r.record(claim(3), false, nil) {
		t.Error("the end of a refusal is no news, or is news twice")
	}
	said := 0
	for at := range 100 {
		if r.record(claim(at), true, noPermission{}) {
			said++
		}
	}
	if said != refusalsLogged || !r.shards(100, time.Hour).denied || !r.recordDenied("settle", noPermission{}) {
		t.Errorf("%d of 100 shards are logged, want %d", said, refusalsLogged)
	}
}
