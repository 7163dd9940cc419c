package deploy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// mistyped returns a fleet whose document was written to Consul directly, with a typing
// error.
func mistyped(t *testing.T) (tr *trial, advice string) {
	t.Helper()
	tr = newTrial(t, newSettings(t))
	putDocument(t, tr.settings, "orders", "shards: 2\ndecl: {queue: orders.due, queue_type: classic}\n")
	tr.schedule("0s")
	advice = tr.finds("topic orders document", "fail", "orders:2: decl: unknown key")["topic orders document"]
	// check reads the documents too
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"document_refused orders"}, Exit: 4, Doctor: 1,
		Connect: 1, Ready: []int{200, 200}, Metrics: []string{"document_refused orders"},
		Alerts: []string{"DuefleetConfigRefused"}})
	return tr, advice
}

func mistypedDocument(t *testing.T) {
	tr, advice := mistyped(t)
	tr.run(tr.advised(advice, "scanner topic set orders decl="))
	tr.heals()
}

func mistypedDocumentUndone(t *testing.T) {
	tr, advice := mistyped(t)
	tr.run(tr.advised(advice, "scanner topic undo orders"))
	tr.heals()
}

// forgottenPause: doctor only warns, since an operator may want the pause.
func forgottenPause(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic pause orders --config " + tr.config)
	tr.schedule("0s")
	advice := tr.finds("topic orders paused", "warn", "paused: nothing is delivered, and 3 tasks are due")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"topic_paused orders"}, Exit: 4, Ready: []int{200, 200},
		Alerts: []string{"DuefleetTopicPaused"}})
	tr.run(tr.advised(advice["topic orders paused"], "scanner topic resume orders"))
	tr.heals()
}

// lostBinding: doctor reports two things, the missing binding and the tasks parked
// because of it.
func lostBinding(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders max_attempts=1 --config " + tr.config)
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.OK(t, ch.QueueUnbind("orders.due", "orders", "orders", nil))
	tr.schedule("0s")
	advice := tr.finds("topic orders binding", "fail", "no queue is bound to exchange orders for key orders",
		"topic orders parked")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"tasks_parked orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Alerts: []string{"DuefleetTasksParked"}})
	line := tr.advised(advice["topic orders binding"], "rabbitmqadmin ")
	words := regexp.MustCompile(`declare binding source=(\S+) destination=(\S+) routing_key=(\S+)$`).FindStringSubmatch(line)
	if words == nil {
		t.Fatalf("%q binds nothing", line)
	}
	check.OK(t, ch.QueueBind(words[2], words[3], words[1], false, nil))
	// it asks for confirmation on a terminal
	tr.run(tr.advised(advice["topic orders parked"], "scanner parked replay") + " --yes")
	tr.heals()
}

func noScanner(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	for _, s := range tr.scanners {
		check.OK(t, s.Kill())
	}
	tr.schedule("0s")
	advice := tr.finds("fleet", "fail", "no scanner runs")["fleet"]
	if want := "scanner run --config " + tr.config; advice != want {
		t.Errorf("the advice is %q, want %q", advice, want)
	}
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"no_scanner"}, Exit: 4, Doctor: 1,
		Alerts: []string{"DuefleetNoScanner"}})
	tr.start()
	tr.heals()
}

func brokerWithoutMemory(t *testing.T) {
	s, node := newSettings(t), ownRabbitMQ(t)
	s.RabbitMQURL = node.URL("/")
	tr := newTrial(t, s)
	watermark := func(share string) {
		t.Helper()
		_, err := node.Ctl(t.Context(), "set_vm_memory_high_watermark", share)
		check.OK(t, err)
	}
	watermark("0")
	for range 5 { // each scanner has some
		tr.schedule("0s")
	}
	tr.says(tr.finds("rabbitmq.connection", "fail", "low on memory")["rabbitmq.connection"],
		"free disk space or memory on the broker's machine")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"rabbitmq_blocked orders"}, Exit: 4, Doctor: 1, Connect: 1,
		Ready: []int{503, 503}, Metrics: []string{"rabbitmq_blocked orders"},
		Alerts: []string{"DuefleetRabbitMQBlocked"}})
	// RabbitMQ confirms nothing, so scanners that stop wait for their messages.
	for _, scanner := range tr.scanners {
		check.OK(t, scanner.Signal(syscall.SIGTERM))
	}
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"rabbitmq_blocked orders", "stopping"}, Exit: 4, Doctor: 1,
		Connect: 1, Ready: []int{503, 503}, Metrics: []string{"rabbitmq_blocked orders", "stopping"},
		Alerts: []string{"DuefleetRabbitMQBlocked"}})
	watermark("0.6")
	for _, scanner := range tr.scanners {
		check.Closed(t, "the scanner to end", scanner.Gone())
	}
	tr.start()
	tr.heals()
}

func evictingRedis(t *testing.T) {
	k := newKept(t, "redis.conf")
	s := newSettings(t)
	s.RedisAddr = k.server.Addr()
	tr := newTrial(t, s)
	k.ask("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	tr.schedule("0s")
	advice := tr.finds("redis.eviction", "fail", "allkeys-lru")["redis.eviction"]
	// a notice: tasks may be lost, and all are served
	tr.restart() // scanners look once per minute, and when they start
	tr.tell(verdicts{Status: problem.Healthy, Problems: []string{"redis_unsafe"}, Doctor: 1, Ready: []int{200, 200},
		Metrics: []string{"redis_unsafe"}, Alerts: []string{"DuefleetRedisUnsafe"}})
	tr.run(tr.advised(advice, "redis-cli "))
	tr.says(advice, "; then CONFIG REWRITE")
	k.ask("CONFIG", "REWRITE")
	tr.restart()
	tr.heals()
	k.restart() // Redis keeps the setting
	tr.awaitHealthy()
}

// newerRecords: a higher number in a record's first byte marks a newer format. The test
// can't run newer scanners, so it restores the byte instead.
func newerRecords(t *testing.T) {
	const format = 4 * 16 // docs/protocol.md: each format adds 16 to the byte, and four are known
	tr := newTrial(t, newSettings(t))
	tr.schedule("1h")
	tr.rewrite(tr.tasks[3:], func(record []byte) { record[0] += format })
	tr.schedule("0s")
	advice := tr.finds("topic orders records", "fail", "3 tasks are due and lie still")["topic orders records"]
	tr.says(advice, "run scanners of the version that wrote them again")
	tr.tell(verdicts{Status: problem.Broken, Problems: []string{"records_unreadable orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Alerts: []string{"DuefleetTasksUnreadable"}})
	tr.stop()
	tr.rewrite(tr.tasks[3:6], func(record []byte) { record[0] -= format })
	tr.start()
	tr.heals()
}

// rewrite changes the records of tasks, and makes them due, since a day.
func (tr *trial) rewrite(ids []string, change func(record []byte)) {
	tr.t.Helper()
	ctx, rdb := tr.t.Context(), redisAt(tr.t, tr.settings.RedisAddr)
	due := time.Now().Add(-24 * time.Hour).UnixMilli()
	for _, id := range ids {
		shard := tr.settings.RedisPrefix + ":%s:{orders:0}"
		if !rdb.HExists(ctx, fmt.Sprintf(shard, "task"), id).Val() {
			shard = tr.settings.RedisPrefix + ":%s:{orders:1}"
		}
		record, err := rdb.HGet(ctx, fmt.Sprintf(shard, "task"), id).Bytes()
		check.OK(tr.t, err)
		copy(record[1:7], binary.BigEndian.AppendUint64(nil, uint64(due))[2:]) //nolint:gosec // a time after 1970
		change(record)
		written := rdb.HSet(ctx, fmt.Sprintf(shard, "task"), id, record).Err()
		scored := rdb.ZAdd(ctx, fmt.Sprintf(shard, "due"), redis.Z{Score: float64(due), Member: id}).Err()
		check.OK(tr.t, errors.Join(written, scored))
	}
}

func strayScanner(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	s := tr.settings
	s.ConsulAddr, s.Topics = "", served()
	s.Topics["orders"]["shards"] = 8
	stray := startScanner(t, s)
	tr.scanners = append(tr.scanners, stray)
	tr.schedule("0s")
	tr.says(tr.finds("fleet source", "fail", "takes its settings from file")["fleet source"],
		"give it the source of the others, or stop it")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"other_source"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200, 200}, Metrics: []string{"other_source"}, Alerts: []string{"DuefleetProblemMinor"}})
	tr.scanners = tr.scanners[:2]
	if code, err := stray.Stop(check.Context(t)); err != nil || code != 0 {
		t.Fatalf("the scanner ended with code %d, %v", code, err)
	}
	tr.heals()
}

// loginRefused is for a Redis that refuses the user of scanners and operators.
func loginRefused() verdicts {
	return verdicts{Exit: 1, Doctor: 1, Connect: 1, Ready: []int{503, 503},
		Metrics: []string{"redis_refuses", "redis_refuses orders"}, Alerts: []string{"DuefleetRedisDown"}}
}

func forgottenUsers(t *testing.T) {
	k := newKept(t, "redis.conf")
	k.documented("sed ")
	tr := newTrial(t, k.settings())
	k.restart()
	tr.schedule("0s")
	tr.says(tr.finds("redis.connection", "fail", "WRONGPASS")["redis.connection"], "docs/deploy.md, Rights")
	tr.tell(loginRefused())
	k.documented("sed ")
	k.documented("redis-cli CONFIG REWRITE")
	tr.heals()
	k.restart() // Redis keeps the users
	tr.awaitHealthy()
}

// oldBinding: doctor only warns, since AMQP can't tell whether the queue is still bound.
func oldBinding(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	tr.run("scanner topic set orders declare.queue=orders.new --config " + tr.config)
	tr.schedule("0s")
	advice := tr.finds("topic orders old queue", "warn",
		"queue orders.due, which an earlier document declared, is still there")["topic orders old queue"]
	tr.tell(verdicts{Status: problem.Healthy, Ready: []int{200, 200}})
	tr.run(tr.advised(advice, "scanner topic set orders --unbind-old"))
	tr.says(advice, "then delete orders.due when it is empty")
	ch := servertest.Channel(t, tr.settings.RabbitMQURL)
	check.Until(t, "the old queue to be empty", func() bool {
		_, more, err := ch.Get("orders.due", true)
		return err != nil || !more
	})
	_, err := ch.QueueDelete("orders.due", true, true, false)
	check.OK(t, err)
	tr.queue = "orders.new"
	tr.heals()
}

func missingRight(t *testing.T) {
	k := newKept(t, "redis.conf")
	k.documented("sed ")
	tr := newTrial(t, k.settings())
	k.ask("ACL", "SETUSER", "duefleet-scanner", "-zrangebyscore")
	tr.schedule("0s")
	advice := tr.finds("redis.rights", "fail", "user duefleet-scanner may not run zrangebyscore",
		"fleet")["redis.rights"] // a heartbeat, too, needs the right
	// status, too, needs the right
	tr.tell(verdicts{Exit: 1, Doctor: 1, Ready: []int{503, 503},
		Metrics: []string{"redis_refuses", "redis_refuses orders"}, Alerts: []string{"DuefleetRedisDown"}})
	tr.run(tr.advised(advice, "redis-cli "))
	tr.heals()
}

func wrongPassword(t *testing.T) {
	k := newKept(t, "redis.conf")
	k.documented("sed ")
	file := filepath.Join(t.TempDir(), "redis.password")
	put := func(password string) {
		t.Helper()
		check.OK(t, fleet.WriteFile(file, []byte(password)))
	}
	put("least")
	s := k.settings()
	s.More = map[string]fleet.Topic{"redis": {"username": "duefleet-scanner", "password_file": file}}
	tr := newTrial(t, s)
	put("lest")
	k.ask("CLIENT", "KILL", "USER", "duefleet-scanner")
	tr.schedule("0s")
	tr.says(tr.finds("redis.connection", "fail", "WRONGPASS")["redis.connection"], "the password in "+file)
	tr.tell(loginRefused())
	put("least")
	tr.heals()
}
