package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// rightsNeededLater are those of a scanner that one at rest doesn't use: Redis denies
// them when it does.
var rightsNeededLater = map[string]string{
	"+del": "a change of M", "+hincrby": "a change of M", "+smismember": "a change of M", "+zrange": "a change of M",
	"+zscore": "giving tasks back",
	"+eval":   "scripts that Redis has not heard of yet", "+hello": "the client does without",
	"+hgetall": "scanner doctor", "+info": "scanner doctor", "+zrandmember": "scanner doctor", "+zscan": "scanner doctor",
}

// TestARightThatRedisDoesNotGiveIsNamed: a scanner that lacks one of the rights in
// deploy/redis is not ready, and /readyz and the log name the right and what grants it.
func TestARightThatRedisDoesNotGiveIsNamed(t *testing.T) {
	t.Parallel()
	line, err := os.ReadFile(filepath.Join("..", "..", "deploy", "redis", "scanner.acl"))
	if err != nil {
		t.Fatal(err)
	}
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
			wait.For(t, "/readyz and the log to name "+right, func() bool {
				_, body := l.ask("/readyz")
				return names(strings.Split(body, "\n"), "redis: down (required)", name) && names(l.said.of("level=WARN"), "", name)
			})
		})
	}
}

// names reports whether a line tells of a right and of what grants it.
func names(lines []string, prefix, right string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, prefix) && strings.Contains(line, right) && strings.Contains(line, "grant it with ACL SETUSER")
	})
}

// without runs a scanner whose user has all rights but one, on keys of its own, until
// the test is over. It returns the topic orders for one who may do everything, too.
func (l *lone) without(t *testing.T, rights []string, right string) (*lone, *shard.Topic) {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	args := []any{"ACL", "SETUSER", prefix}
	for _, word := range rights {
		if word != right {
			args = append(args, strings.NewReplacer("PASSWORD", "secret", "duefleet:", prefix+":").Replace(word))
		}
	}
	own := &lone{t: t, said: &journal{}}
	own.ok(l.rdb.Do(t.Context(), args...).Err())
	t.Cleanup(func() { _ = l.rdb.Do(context.Background(), "ACL", "DELUSER", prefix).Err() })
	options := servertest.RedisOptions(addr)
	options.Username, options.Password = prefix, "secret"
	own.rdb = redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = own.rdb.Close() })
	cfg := *l.cfg.Settings
	cfg.Redis.Prefix, cfg.ShutdownTimeout = prefix, 100*time.Millisecond // what Redis denies it can't end
	var err error
	own.Scanner, err = New(Config{
		Settings: &cfg, Source: config.NewFile(l.path, nil), Redis: own.rdb, Instance: "without",
		Log: slog.New(slog.NewTextHandler(own.said, nil)),
	})
	own.ok(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- own.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = wait.Receive(t, "the scanner to end", ended) // in time or not
	})
	wait.For(t, "the scanner to run", func() bool { return len(own.said.of("scanner started")) > 0 })
	all, err := shard.New(l.rdb, prefix)
	own.ok(err)
	return own, all.Topic("orders")
}

// storeOne stores a task that is due.
func storeOne(t *testing.T, topic *shard.Topic) {
	t.Helper()
	var p shard.Placement
	wait.For(t, "the topic's placement", func() (there bool) {
		var err error
		p, err = topic.Placement(t.Context())
		return err == nil
	})
	now, err := topic.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint("o-", p.Epoch)
	put := shard.Put{Shard: p.New(id), Op: shard.NewOp(), Entries: []shard.Entry{{ID: id, When: shard.In(0), Body: []byte{0}}}}
	if err := topic.Put(t.Context(), p, now+time.Hour.Milliseconds(), []shard.Put{put})[0].Err; err != nil {
		t.Fatal(err)
	}
}
