package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// finding is one finding of `scanner doctor -o json`.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	What  string `json:"what"`
	Fix   string `json:"fix"`
}

// findings are doctor's findings and its exit code.
type findings struct {
	t    *testing.T
	list []finding
	code int
	text string
}

// examine runs `scanner doctor` as an operator would.
func examine(t *testing.T, s fleet.Settings) findings {
	t.Helper()
	return examineFile(t, writeSettings(t, s))
}

// examineFile runs doctor again if a server took longer to answer than doctor waits, five
// seconds: such a result says nothing about the tested fault. A doctor that never ends
// within doctorLimit fails the test.
func examineFile(t *testing.T, path string) (f findings) {
	t.Helper()
	check.Until(t, "the servers to answer doctor in its time", func() bool {
		f = examineOnce(t, path)
		return f.code >= 0 && !strings.Contains(f.text, "no answer within")
	})
	return f
}

func examineOnce(t *testing.T, path string) findings {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), doctorLimit)
	defer cancel()
	cmd := commandUntil(ctx, nil, programs.Scanner, "doctor", "--config", path, "-o", "json")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	f := findings{t: t, code: cmd.ProcessState.ExitCode(), text: string(out)}
	if f.code < 0 { // killed
		return f
	}
	if err := json.Unmarshal(out, &f.list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, x := range f.list {
		if (x.State == "fail" || x.State == "warn") != (x.Fix != "") {
			t.Errorf("%s is %s, with the advice %q", x.Check, x.State, x.Fix)
		}
	}
	return f
}

// says reports whether a check has a state, and whether its text and its advice contain
// the given words.
func (f findings) says(check, state, what, fix string) bool {
	return slices.ContainsFunc(f.list, func(x finding) bool {
		return x.Check == check && x.State == state && strings.Contains(x.What, what) && strings.Contains(x.Fix, fix)
	})
}

// want fails the test unless says returns true.
func (f findings) want(check, state, what, fix string) {
	f.t.Helper()
	if f.says(check, state, what, fix) {
		return
	}
	f.t.Errorf("no %s of %s says %q and %q; there are\n%s", state, check, what, fix, f.text)
}

// exitsOne fails the test unless doctor's exit code was 1.
func (f findings) exitsOne() {
	f.t.Helper()
	if f.code != 1 {
		f.t.Errorf("exit code %d, want 1:\n%s", f.code, f.text)
	}
}

// served returns a topic whose exchange and queue the scanner declares.
func served() map[string]fleet.Topic {
	return map[string]fleet.Topic{"orders": {
		"shards": 2, "declare": map[string]any{"queue": "orders.due", "queue_type": "classic"},
	}}
}

// TestDoctorFindsNothing: for a healthy fleet, doctor reports every check as ok, and
// leaves no keys behind.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	putDocument(t, s, "orders", `{"shards": 2, "declare": {"queue": "orders.due", "queue_type": "classic"}}`)
	startScanner(t, s)
	startScanner(t, s)
	// A new scanner registers a second after its start, and a live one looks dead if the
	// machine stalls.
	f := until(t, s, "doctor to find nothing wrong with a healthy fleet", nil, func(f findings) bool {
		return f.code == 0 && f.says("fleet", "ok", "2 scanners run", "")
	})
	for _, check := range []string{
		"config", "redis.connection", "redis.version", "redis.eviction", "redis.persistence", "redis.clock", "redis.rights",
		"consul.connection", "consul.rights", "fleet", "topic orders applied", "rabbitmq.connection", "topic orders exchange",
	} {
		f.want(check, "ok", "", "")
	}
	f.want("topic orders binding", "info", "AMQP can't tell", "")
	f.want("topic orders queue", "warn", "nobody consumes", "orders.due")
	rdb := redisAt(t, s.RedisAddr)
	if keys, err := rdb.Keys(t.Context(), s.RedisPrefix+":doctor:*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("doctor left %q, %v", keys, err)
	}

	var table string
	check.Until(t, "doctor to find nothing wrong when it prints a table", func() bool {
		out, err := command(t, nil, programs.Scanner, "doctor", "--config", writeSettings(t, s)).Output()
		table = string(out)
		return err == nil
	})
	if !regexp.MustCompile(`(?m)^ok +redis\.eviction +\S+ evicts nothing$`).MatchString(table) {
		t.Errorf("the table doesn't say that nothing is evicted:\n%s", table)
	}
}

func redisAt(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestDoctorFindsRedisSetWrong: doctor finds wrong settings of Redis for eviction,
// persistence and memory.
func TestDoctorFindsRedisSetWrong(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
	s := newSettings(t)
	s.RedisAddr, s.Topics = server.Addr(), served()
	f := examine(t, s)
	f.exitsOne()
	f.want("redis.eviction", "fail", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")
	f.want("redis.persistence", "fail", "no append-only file", "CONFIG SET appendonly yes")
	f.want("fleet", "fail", "no scanner runs", "scanner run --config")

	// The commands in doctor's advice fix them.
	rdb := redisAt(t, server.Addr())
	for _, x := range f.list {
		if set := regexp.MustCompile(`CONFIG SET (\S+) ([^;\s]+)`).FindStringSubmatch(x.Fix); set != nil {
			if err := rdb.ConfigSet(t.Context(), set[1], set[2]).Err(); err != nil {
				t.Errorf("%s: %v", x.Fix, err)
			}
		}
	}
	startScanner(t, s)
	f = until(t, s, "doctor to find nothing wrong", nil, func(f findings) bool { return f.code == 0 })
	f.want("redis.eviction", "ok", "evicts nothing", "")
	f.want("redis.persistence", "ok", "synced everysec", "")
}

// TestDoctorFindsMissingRights: doctor finds a wrong password and a user without some
// commands. The rights that it names are enough.
func TestDoctorFindsMissingRights(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	rdb := redisAt(t, server.Addr())
	acl := func(rules ...any) {
		t.Helper()
		check.OK(t, rdb.Do(t.Context(), append([]any{"ACL", "SETUSER", "shop"}, rules...)...).Err())
	}
	acl("on", ">right", "~*", "&*", "+@all", "-zrangebyscore", "-spublish", "-ssubscribe", "-config")
	s := newSettings(t)
	s.RedisAddr, s.Topics = server.Addr(), served()
	path := func(password string) string {
		doc := s.Document()
		section := doc["redis"].(map[string]any)
		section["username"], section["password"] = "shop", password
		path := filepath.Join(t.TempDir(), "config.yaml")
		check.OK(t, fleet.WriteConfig(path, doc))
		return path
	}
	f := examineFile(t, path("wrong"))
	f.exitsOne()
	f.want("redis.connection", "fail", "WRONGPASS", "ACL SETUSER shop on")

	right := path("right")
	f = examineFile(t, right)
	f.exitsOne()
	f.want("redis.rights", "fail", "user shop may not run zrangebyscore, spublish, ssubscribe",
		"+zrangebyscore +spublish +ssubscribe")
	f.want("redis.persistence", "ok", "keeps an append-only file", "")
	f.want("redis.persistence (appendfsync)", "not_checked", "may not read how often", "")
	acl("+zrangebyscore", "+spublish", "+ssubscribe")
	examineFile(t, right).want("redis.rights", "ok", "user shop may run all", "")
	acl("resetkeys", "~other:*")
	examineFile(t, right).want("redis.rights", "fail", s.RedisPrefix, "~"+s.RedisPrefix+":*")

	// The rights in deploy/redis are enough for doctor as well.
	acl(deployedRights(t, s.RedisPrefix)...)
	examineFile(t, right).want("redis.rights", "ok", "user shop may run all", "")
	if strings.Contains(f.text, "right\"") && strings.Contains(f.text, "password\"") {
		t.Error("doctor prints the password")
	}
}

// deployedRights returns the rights of a scanner, with the password "right".
func deployedRights(t *testing.T, prefix string) (rights []any) {
	t.Helper()
	line := strings.NewReplacer("PASSWORD", "right", "duefleet:", prefix+":").Replace(file(t, "deploy/redis/scanner.acl"))
	for _, word := range strings.Fields(line)[2:] {
		rights = append(rights, word)
	}
	return rights
}

// TestDoctorTriesEveryCommand: doctor tries every command that our scripts call, except
// in scripts that only producers, consumers or operators call.
func TestDoctorTriesEveryCommand(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join(root, "internal/shard/scripts/*.lua"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	tried := file(t, "internal/doctor/rights.go")
	theirs := []string{"allow_next.lua", "check_delivery.lua", "clear.lua", "done.lua", "lib_history.lua",
		"lib_prune.lua", "list.lua", "note.lua", "older.lua", "requeue.lua"}
	for _, path := range scripts {
		if slices.Contains(theirs, filepath.Base(path)) {
			continue
		}
		b, err := os.ReadFile(path)
		check.OK(t, err)
		for _, m := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(string(b), -1) {
			if !regexp.MustCompile(`"` + m[1] + `[ "]`).MatchString(tried) {
				t.Errorf("%s calls %s, but doctor doesn't try it", filepath.Base(path), m[1])
			}
		}
	}
}

// TestDoctorFindsTheBrokerWrong: doctor finds a missing exchange, a missing queue,
// returned tasks, a wrong password, a missing vhost, and a broker that doesn't answer.
func TestDoctorFindsTheBrokerWrong(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{
		"missing": {"exchange": "nowhere"},
		"queue":   {"exchange": "", "routing_key": "no.such.queue"},
		"unbound": {"exchange": "amq.direct", "routing_key": "nobody", "max_attempts": 1},
	}
	s.Topics["orders"] = served()["orders"]
	startScanner(t, s)
	must(t, command(t, nil, programs.Producer, "schedule", "--config", writeSettings(t, s), "--topic", "unbound", "--id",
		"u", "--in", "0s"))
	awaitParked(t, s, "unbound")
	// A scanner reports its state once per second, and one that has just connected may
	// declare the queue once more.
	f := until(t, s, "doctor to find the missing queue and the scanner's missing exchange",
		func() { remove(t, s.RabbitMQURL, "orders.due") }, func(f findings) bool {
			return f.says("topic orders queue", "fail", "no queue", "") && f.says("topic missing served", "fail", "nowhere", "")
		})
	f.exitsOne()
	f.want("topic missing exchange", "fail", "nowhere", "declare exchange name=nowhere type=direct durable=true")
	f.want("topic missing served", "fail", "nowhere", "scanner status")
	f.want("topic queue queue", "fail", "no.such.queue", "declare queue name=no.such.queue")
	f.want("topic orders queue", "fail", "orders.due",
		"declare binding source=orders destination=orders.due routing_key=orders")
	f.want("topic unbound binding", "fail", "no queue is bound to exchange amq.direct for key nobody", "source=amq.direct")
	f.want("topic unbound parked", "fail", "NO_ROUTE", "scanner parked replay")

	for url, want := range map[string][2]string{
		strings.Replace(s.RabbitMQURL, "guest:guest", "guest:sesame", 1): {"", "rabbitmqctl change_password guest"},
		s.RabbitMQURL + "-not-there":                                     {"", "rabbitmqctl add_vhost"},
		"amqp://guest:sesame@127.0.0.1:1/":                               {"refused", "start the broker"},
		strings.Replace(s.RabbitMQURL, "amqp://", "amqps://", 1):         {"tls", "write amqp:// in rabbitmq.urls[0]"},
	} {
		broken := s
		broken.RabbitMQURL = url
		f := examine(t, broken)
		f.exitsOne()
		f.want("rabbitmq.connection", "fail", want[0], want[1])
		if strings.Contains(f.text, "sesame") {
			t.Errorf("doctor prints the password:\n%s", f.text)
		}
	}
}

// TestDoctorFindsTasksThatNoQueueTakes: doctor finds tasks without a queue while they are
// tried again and none is parked. It mentions a paused topic, which is not a failure.
func TestDoctorFindsTasksThatNoQueueTakes(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{
		"unbound": {"exchange": "amq.direct", "routing_key": "nobody", "max_attempts": 1000,
			"backoff": map[string]any{"min": "1h", "max": "1h"}},
	}
	s.Topics["orders"] = served()["orders"]
	s.Topics["orders"]["paused"] = true
	startScanner(t, s)
	f := until(t, s, "doctor to find a healthy fleet", nil, func(f findings) bool {
		return f.code == 0 &&
			f.says("topic orders paused", "info", "", "")
	})
	f.want("topic orders paused", "info", "paused: nothing is delivered", "")
	f.want("topic unbound binding", "info", "AMQP can't tell", "")
	must(t, command(t, nil, programs.Producer, "schedule", "--config", writeSettings(t, s), "unbound", "--id", "u", "--in",
		"0s"))
	f = until(t, s, "doctor to find what no queue takes", nil,
		func(f findings) bool { return f.says("topic unbound binding", "fail", "", "") })
	f.exitsOne()
	f.want("topic unbound binding", "fail",
		"RabbitMQ returned messages: no queue is bound to exchange amq.direct for key nobody", "source=amq.direct")
	if f.fails() != 1 {
		t.Errorf("one cause, but %d failures:\n%s", f.fails(), f.text)
	}
}

// fails counts the findings that are failures.
func (f findings) fails() (n int) {
	for _, x := range f.list {
		if x.State == "fail" {
			n++
		}
	}
	return n
}

// TestDoctorFindsAnAlarm: doctor reports a broker's alarm once, not for each scanner or
// topic. check --connect finds it as well.
func TestDoctorFindsAnAlarm(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	node := ownRabbitMQ(t)
	s.RabbitMQURL = node.URL("/")
	s.Topics = served()
	s.Topics["mails"] = fleet.Topic{"declare": map[string]any{"queue": "mails.due", "queue_type": "classic"}}
	startScanner(t, s)
	startScanner(t, s)
	until(t, s, "doctor to find a healthy fleet", nil, func(f findings) bool {
		return f.code == 0 &&
			f.says("fleet", "ok", "2 scanners", "")
	})
	_, err := node.Ctl(t.Context(), "set_disk_free_limit", "100000GB")
	check.OK(t, err)
	for _, topic := range []string{"orders", "mails"} { // a broker notifies only connections that publish
		must(t, command(t, nil, programs.Producer, "schedule", "--config", writeSettings(t, s), topic, "--id", "a", "--in",
			"0s"))
	}
	f := until(t, s, "doctor to find the alarm", nil,
		func(f findings) bool { return f.says("rabbitmq.connection", "fail", "RabbitMQ blocks publishers", "") })
	f.exitsOne()
	path := writeSettings(t, s)
	check.Until(t, "the scanners to say that they are blocked", func() bool {
		status, err := fleet.ReadStatus(t.Context(), programs.Scanner, path)
		return err == nil && strings.Contains(strings.Join(append(status.Topic("orders").Notes,
			status.Topic("mails").Notes...), "\n"), "blocks publishers")
	})
	if f = examine(t, s); f.fails() != 1 {
		t.Errorf("one cause, but %d failures:\n%s", f.fails(), f.text)
	}
	f.want("rabbitmq.connection", "fail", "low on disk", "rabbitmq-diagnostics alarms")
	if said := refused(t, command(t, nil, programs.Scanner, "check", "--config", path,
		"--connect")); !strings.Contains(said, "RabbitMQ blocks publishers") {
		t.Errorf("check says %s", said)
	}
	_, err = node.Ctl(t.Context(), "set_disk_free_limit", "50MB")
	check.OK(t, err)
	until(t, s, "doctor to find the alarm over", nil, func(f findings) bool { return f.code == 0 })
}

// ownRabbitMQ returns a node that a test may break. It ends with the test.
func ownRabbitMQ(t *testing.T) *servers.RabbitMQ {
	t.Helper()
	node, err := servers.StartRabbitMQ(check.Context(t), servers.RabbitMQConfig{Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	return node
}

// remove deletes a queue, if it exists, without the scanners' knowledge.
func remove(t *testing.T, url, queue string) {
	t.Helper()
	ch := servertest.Channel(t, url)
	_, err := ch.QueueDelete(queue, false, false, false)
	check.OK(t, err)
}

func awaitParked(t *testing.T, s fleet.Settings, topic string) {
	t.Helper()
	path := writeSettings(t, s)
	check.Until(t, "a task of "+topic+" to be parked", func() bool {
		status, err := fleet.ReadStatus(t.Context(), programs.Scanner, path)
		return err == nil && status.Topic(topic).Parked > 0
	})
}

// until runs doctor until found returns true, and before each run calls before. It
// repeats because scanners report their state only with each heartbeat.
func until(t *testing.T, s fleet.Settings, what string, before func(), found func(findings) bool) (f findings) {
	t.Helper()
	return untilFile(t, writeSettings(t, s), what, before, found)
}

func untilFile(t *testing.T, path, what string, before func(), found func(findings) bool) (f findings) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("doctor's last findings:\n%s", f.text)
		}
	}()
	check.Until(t, what, func() bool {
		if before != nil {
			before()
		}
		f = examineFile(t, path)
		return found(f)
	})
	return f
}

// TestDoctorComparesWithWhatIsApplied: doctor finds a document that the fleet rejects,
// one that it hasn't applied, and a topic whose document is missing.
func TestDoctorComparesWithWhatIsApplied(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	good := `{"shards": 2, "declare": {"queue": "%s", "queue_type": "classic"}}`
	putDocument(t, s, "orders", fmt.Sprintf(good, "orders.due"))
	putDocument(t, s, "mail", fmt.Sprintf(good, "mail.due"))
	startScanner(t, s)
	putDocument(t, s, "mail", `{"shards": 0}`)
	until(t, s, "doctor to tell who refuses a document", nil, func(f findings) bool {
		return f.says("topic mail document", "fail", "refuses it", "") && f.says("topic orders applied", "ok", "", "")
	})
	// These documents are under a prefix that no scanner watches, so they differ from the
	// fleet's settings.
	s.ConsulPrefix += "-new"
	putDocument(t, s, "mail", `{"shards": 0}`)
	putDocument(t, s, "orders", `{"shards": 4, "batch": 7, "declare": {"queue": "orders.due", "queue_type": "classic"}}`)
	f := until(t, s, "doctor to see the scanner", nil,
		func(f findings) bool { return f.says("fleet", "warn", "only scanner", "") })
	f.exitsOne()
	f.want("topic mail document", "fail", "shards", "scanner topic set mail")
	f.want("topic orders applied", "warn", "shards is 2 and should be 4; batch is 500 and should be 7", "scanner")

	s.ConsulPrefix += "-empty"
	f = examine(t, s)
	f.want("topic orders document", "warn", "orphan", "scanner topic rm orders")
	f.want("topics", "warn", "consul holds no topics", "scanner topic create")
	s.ConsulAddr = "127.0.0.1:1"
	examine(t, s).want("consul.connection", "fail", "refused", "start the agent")
}

// TestDoctorFindsMistakes: doctor finds a mistake in the configuration. If only topics
// are wrong, it still checks the servers.
func TestDoctorFindsMistakes(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": {"shards": 0}}
	f := examine(t, s)
	f.exitsOne()
	f.want("config", "fail", "topics.orders.shards", "scanner check --config")
	f.want("redis.connection", "ok", s.RedisAddr, "")

	s.Topics, s.RedisAddr = served(), "no-port"
	f = examine(t, s)
	f.exitsOne()
	f.want("config", "fail", "redis.addrs", "scanner check --config")
	if u, err := url.Parse(s.RabbitMQURL); err != nil || strings.Contains(f.text, u.User.String()) {
		t.Errorf("doctor prints a password, %v:\n%s", err, f.text)
	}
}

// TestCheckConnects: check connects only to Consul, and with --connect to every server.
// It names the servers that can't be used, and prints no password.
func TestCheckConnects(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	// A server may take longer than check waits, five seconds: then run check again.
	says := func(want int, patterns []string, args ...string) (said string) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("check %q last said:\n%s", args, said)
			}
		}()
		check.Until(t, fmt.Sprintf("check %q to end with %d and say %q", args, want, patterns), func() bool {
			cmd := command(t, nil, programs.Scanner, append([]string{"check", "--config", writeSettings(t, s)}, args...)...)
			out, _ := cmd.CombinedOutput() // the exit code tells
			said = string(out)
			lacking := func(pattern string) bool { return !regexp.MustCompile(pattern).MatchString(said) }
			return cmd.ProcessState.ExitCode() == want && !slices.ContainsFunc(patterns, lacking)
		})
		return said
	}
	says(0, []string{"^ok, but there are no topics in consul under " + s.ConsulPrefix + "/topics/"})
	putDocument(t, s, "orders", `{"declare": {"queue": "orders.due"}}`)
	const good = `ok: 1 topics in consul\n$`
	says(0, []string{`(?m)^ok +redis\.connection `, `(?m)^ok +consul\.connection `, `(?m)^ok +rabbitmq\.connection `,
		good}, "--connect")
	s.RedisAddr, s.RabbitMQURL = "127.0.0.1:1", strings.Replace(s.RabbitMQURL, "guest:guest", "guest:sesame", 1)
	says(0, []string{"^" + good})
	said := says(1, []string{`(?m)^fail +redis\.connection .*refused`, `(?m)^fail +rabbitmq\.connection `,
		`2 of 3 servers can't be used`}, "--connect")
	if strings.Contains(said, "sesame") {
		t.Errorf("check prints the password:\n%s", said)
	}
}

// TestDoctorComparesDocumentsAndNoIndexes: scanners that started at different times know
// different Consul indexes, because other keys were written. They still use the same
// documents.
func TestDoctorComparesDocumentsAndNoIndexes(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = servertest.Consul(t)
	putDocument(t, s, "orders", `{"shards": 2, "declare": {"queue": "orders.due", "queue_type": "classic"}}`)
	for i := range 3 {
		startScanner(t, s)
		putDocument(t, s, "", fmt.Sprint("the folder's own key, which isn't a topic's ", i))
	}
	path := writeSettings(t, s)
	check.Until(t, "three scanners that know different indexes", func() bool {
		status, err := fleet.ReadStatus(t.Context(), programs.Scanner, path)
		indexes := map[uint64]bool{}
		for _, m := range status.Fleet {
			indexes[m.Applied] = true
		}
		return err == nil && len(status.Fleet) == 3 && len(indexes) == 3 && !indexes[0]
	})
	f := until(t, s, "doctor to find three scanners that serve", nil, func(f findings) bool {
		return f.code == 0 && f.says("fleet", "ok", "3 scanners run", "")
	})
	for _, x := range f.list {
		if x.Check == "fleet configuration" {
			t.Errorf("doctor finds %+v", x)
		}
	}
}
