package deploy_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func noRedis(t *testing.T) {
	tr, k := newTrialAlone(t)
	check.OK(t, k.server.Kill())
	tr.says(tr.finds("redis.connection", "fail", "refused")["redis.connection"], "start the server")
	tr.tell(verdicts{Exit: 1, Doctor: 1, Connect: 1, Ready: []int{503, 503},
		Metrics: []string{"redis_unreachable", "redis_unreachable orders"}, Alerts: []string{"DuefleetRedisDown"}})
	k.restart()
	tr.heals()
}

// nearlyFullRedis has a ballast that makes what clients use count for little.
func nearlyFullRedis(t *testing.T) {
	tr, k := newTrialAlone(t)
	k.ask("SETRANGE", "ballast", 50_000_000, "x")
	k.ask("CONFIG", "SET", "maxmemory", "54mb")
	tr.restart() // scanners look once per minute, and when they start
	tr.says(tr.finds("fleet", "fail", "redis will soon refuse new tasks")["fleet"], "remove what isn't needed")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"redis_nearly_full"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"redis_nearly_full"},
		Alerts: []string{"DuefleetRedisNearlyFull"}})
	k.ask("DEL", "ballast")
	tr.restart()
	tr.heals()
}

// wrongClock: tasks are early.
func wrongClock(t *testing.T) {
	server, set := servertest.RedisWithClock(t, filepath.Join(root, "test", "chaos", "testdata", "clock.c"))
	s := newSettings(t)
	s.RedisAddr = server.Addr()
	tr := newTrial(t, s)
	set(2 * time.Minute)
	tr.finds("fleet", "fail", "redis's clock is 2m0s ahead")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"clock_offset"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"clock_offset"}, Alerts: []string{"DuefleetClockOffset"}})
	set(0)
	tr.heals()
}

// mistyped replaces a key by one of another type, and returns what undoes that.
func (tr *trial) mistyped(key string) (undo func()) {
	tr.t.Helper()
	ctx, rdb := tr.t.Context(), redisAt(tr.t, tr.settings.RedisAddr)
	key = tr.settings.RedisPrefix + ":" + key
	check.OK(tr.t, rdb.Rename(ctx, key, key+"-aside").Err())
	check.OK(tr.t, rdb.Set(ctx, key, "odd", 0).Err())
	return func() {
		tr.t.Helper()
		check.OK(tr.t, rdb.Rename(ctx, key+"-aside", key).Err())
	}
}

func mistypedShard(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	undo := tr.mistyped("due:{orders:1}")
	tr.finds("topic orders served", "fail", "WRONGTYPE", "topic orders tasks")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"shard_unserved orders", "shards_unreadable orders"},
		Exit: 4, Doctor: 1, Ready: []int{200, 200}, Metrics: []string{"shard_unserved orders"},
		Alerts: []string{"DuefleetShardRefused"}})
	undo()
	tr.heals()
}

func mistypedTopic(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.stop()
	undo := tr.mistyped("placement:{orders}")
	tr.start()
	tr.finds("topic orders tasks", "fail", "WRONGTYPE")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"topic_not_made orders", "topic_unreadable orders"},
		Exit: 4, Doctor: 1, Ready: []int{503, 503}, Metrics: []string{"topic_not_made orders"},
		Alerts: []string{"DuefleetProblem"}})
	undo()
	tr.heals()
}

// place writes a placement of the topic to Redis.
func (tr *trial) place(placement string) {
	tr.t.Helper()
	rdb := redisAt(tr.t, tr.settings.RedisAddr)
	check.OK(tr.t, rdb.HSet(tr.t.Context(), tr.settings.RedisPrefix+":placement:{orders}", "value", placement).Err())
}

// forkedPlacement follows docs/operate.md#two-placements-of-one-epoch.
func forkedPlacement(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.place("1 3 2 migrating")
	tr.says(tr.finds("topic orders placement", "fail", "two placements of one epoch")["topic orders placement"],
		`docs/operate.md, "Two placements of one epoch"`)
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"placement_forked orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Alerts: []string{"DuefleetMoveStuck"}})
	tr.place("2 2 3 migrating")
	tr.heals()
}

// lostPlacement: Redis lost the placement with 8 shards, and the shards lost what they had
// seen of it.
func lostPlacement(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	for _, s := range tr.scanners {
		check.OK(t, s.Kill())
	}
	tr.place("3 8 8 stable")
	tr.schedule("1h")
	tr.schedule("1h")
	rdb := redisAt(t, tr.settings.RedisAddr)
	for at := range 8 {
		check.OK(t, rdb.Del(t.Context(), fmt.Sprintf("%s:fence:{orders:%d}", tr.settings.RedisPrefix, at)).Err())
	}
	tr.place("1 2 2 stable")
	tr.finds("fleet", "fail", "no scanner runs", "topic orders tasks")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"no_scanner", "tasks_orphaned orders"}, Exit: 4, Doctor: 1,
		Alerts: []string{"DuefleetNoScanner"}})
	tr.start()
	tr.awaitHealthy()
	for _, id := range tr.tasks[3:] {
		tr.producer("reschedule", id, "--in", "0s")
	}
	tr.heals()
}
