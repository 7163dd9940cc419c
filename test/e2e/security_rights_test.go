package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// mostRefusals is the number of entries read from Redis's ACL log. It equals the tests'
// acllog-max-len.
const mostRefusals = 100_000

// rights are the files of deploy/redis, and the code blocks of section Rights in
// docs/deploy.md.
type rights struct {
	redisScanner, redisProducer, redisConsumer, redisOperator []string // words of ACL SETUSER
	rabbitmq, rabbitmqDeclare, rabbitmqDeadLetter             []string // arguments of rabbitmqctl
	consulScanner, consulTopic                                string   // policies
}

func readRights(t *testing.T) rights {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := regexp.MustCompile("```(?:sh\n(rabbitmqctl [^`]*)|hcl\n([^`]*))```").FindAllStringSubmatch(section, -1)
	if len(found) != 6 { // the fourth is the intake's
		t.Fatalf("docs/deploy.md has %d blocks of rights, want 4 for RabbitMQ and 2 for Consul", len(found))
	}
	unquoted := func(block string) []string {
		return strings.Fields(strings.ReplaceAll(strings.TrimPrefix(block, "rabbitmqctl "), `"`, ""))
	}
	return rights{
		redisScanner: redisRights(t, "scanner"), redisProducer: redisRights(t, "producer"),
		redisConsumer: redisRights(t, "consumer"), redisOperator: redisRights(t, "operator"),
		rabbitmq: unquoted(found[0][1]), rabbitmqDeclare: unquoted(found[1][1]), rabbitmqDeadLetter: unquoted(found[2][1]),
		consulScanner: found[4][2], consulTopic: found[5][2],
	}
}

// redisRights returns a role's line of its ACL file, as a command.
func redisRights(t *testing.T, role string) []string {
	t.Helper()
	line, err := os.ReadFile(filepath.Join("..", "..", "deploy", "redis", role+".acl"))
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"ACL", "SETUSER"}, strings.Fields(string(line))[1:]...)
}

// grant runs ACL SETUSER with a password, without some of the rights.
func grant(t *testing.T, admin redis.UniversalClient, line []string, password string, without ...string) (user string) {
	t.Helper()
	if err := admin.Do(t.Context(), words(line, password, without...)...).Err(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return line[2]
}

// words returns the arguments of ACL SETUSER with a password, without some of the rights.
func words(line []string, password string, without ...string) (args []any) {
	for _, word := range line {
		if !slices.Contains(without, word) {
			args = append(args, strings.ReplaceAll(word, "PASSWORD", password))
		}
	}
	return args
}

// TestLeastRights: scanners, producers and operators have exactly the rights in
// deploy/redis and docs/deploy.md. They can do all their work, Redis refuses them
// nothing, and they use every right.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	least := readRights(t)
	g := newGuarded(t)
	w := g.fixture("duefleet", nil)
	g.ctl("add_user", "duefleet", "secret")
	g.ctl(least.rabbitmq...)
	w.settings.More = map[string]fleet.Topic{
		"redis":    {"username": grant(t, w.redis, least.redisScanner, "scanner-secret"), "password": "scanner-secret"},
		"rabbitmq": {"urls": []string{g.amqp("duefleet", "secret")}},
		"consul":   {"token": g.token("scanner", least.consulScanner)},
	}
	w.write()
	p := w.as("producer.yaml", map[string]fleet.Topic{
		"redis":  {"username": grant(t, w.redis, least.redisProducer, "producer-secret"), "password": "producer-secret"},
		"consul": {"addr": ""},
	})
	operator := w.as("operator.yaml", map[string]fleet.Topic{
		"redis":  {"username": grant(t, w.redis, least.redisOperator, "operator-secret"), "password": "operator-secret"},
		"consul": {"token": g.token("operator", least.consulTopic)},
	})

	w.exchange("direct", "orders", "orders.due", "order.due")
	must(t, operator.scanner("topic", "set", "orders", "shards=4", "exchange=orders", "routing_key=order.due",
		"max_attempts=2", "backoff.min=10ms", "backoff.max=10ms", "rate=2000", "history=1h"))
	w.start(2)
	w.awaitServed(4)
	// A scanner that was last heard of long ago is forgotten.
	fleetKey := w.settings.RedisPrefix + ":fleet"
	check.OK(t, w.redis.ZAdd(t.Context(), fleetKey, redis.Z{Score: 1, Member: "gone"}).Err())
	check.Until(t, "the dead scanner to be forgotten", func() bool {
		return errors.Is(w.redis.ZScore(t.Context(), fleetKey, "gone").Err(), redis.Nil)
	})
	w.checkRegistered(g, 2)
	g.checkQuiet("refused for user 'duefleet'", "unknown service")
	w.changeUnder(p, operator)
	w.parkUnder(p, operator)
	if _, err := g.master().KV().Put(&consul.KVPair{Key: w.settings.ConsulPrefix + "/topics/orders",
		Value: []byte("shards: 0\n")}, nil); err != nil {
		t.Fatal(err)
	}
	operator.says("applied by 2 scanners", "topic", "pause", "orders")
	must(t, operator.scanner("topic", "resume", "orders"))

	// From here on the scanners may declare exchanges and queues.
	g.ctl(least.rabbitmqDeclare...)
	must(t, operator.scanner("topic", "set", "orders", "declare.queue=orders.due", "declare.queue_type=classic"))
	must(t, p.producer("schedule", "--topic", "orders", "--id", "declared", "--in", "0s"))
	check.Until(w.t, "a task of a topic with declare", func() bool { return len(w.delivered("declared")) == 1 })

	operator.says("", "topic", "rm", "orders", "--purge", "--yes")
	if out := must(t, operator.scanner("topic", "history", "orders")); !holdsLine(out.Stdout, "7  ",
		[]string{"token ", "rm", "removed"}) {
		t.Errorf("topic history says\n%s", out.Stdout)
	}
	operator.says("applied by 2 scanners", "topic", "undo", "orders")
	w.stop()
	g.checkQuiet("refused for user 'duefleet'", "unknown service")
	checkRefused(t, w.redis)
	for _, s := range w.scanners {
		if strings.Contains(w.log(s), "NOPERM") {
			t.Errorf("a script was refused to a scanner:\n%s", w.log(s))
		}
	}
	if told := w.scanner("doctor").Stdout; !holdsLine(told, "ok", []string{"redis.rights", "may run all"}) {
		t.Errorf("scanner doctor finds a scanner's rights wanting:\n%s", told)
	}
	if told := operator.scanner("doctor").Stdout; !holdsLine(told, "info",
		[]string{"redis.rights", "has the rights of an operator"}) ||
		!holdsLine(told, "ok", []string{"redis.eviction"}) || strings.Contains(told, "NOPERM") {
		t.Errorf("scanner doctor can't be run with an operator's rights:\n%s", told)
	}
	checkUsed(t, w.redis, least.redisScanner)
	checkUsed(t, w.redis, least.redisOperator)
}

// TestLeastRightsOfProducers: a producer needs every right that deploy/redis gives it.
// The test covers a change that no scanner continues, and shards that have not seen the
// end of a change.
func TestLeastRightsOfProducers(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--requirepass", adminPassword)
	w := newFixtureOn(t, fleet.Settings{RedisAddr: server.Addr(), RedisPrefix: "duefleet"},
		&redis.UniversalOptions{Addrs: []string{server.Addr()}, Password: adminPassword})
	line := redisRights(t, "producer")
	p := w.as("producer.yaml", map[string]fleet.Topic{
		"redis": {"username": grant(t, w.redis, line, "secret"), "password": "secret"},
	})
	for at := range 8 {
		fence := fmt.Sprintf("duefleet:fence:{orders:%d}", at)
		if err := w.redis.HSet(t.Context(), fence, "history", 60_000).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for round, placement := range []string{"1 4 4 stable", "2 8 4 migrating", "3 8 8 stable"} {
		if err := w.redis.HSet(t.Context(), "duefleet:placement:{orders}", "value", placement).Err(); err != nil {
			t.Fatal(err)
		}
		client := p.library()
		schedule := func(id string, in time.Duration) func() error {
			return func() error {
				_, err := client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: id, When: producer.In(in)})
				return err
			}
		}
		reschedule := func(id string, in time.Duration) func() error {
			return func() error {
				_, err := client.Reschedule(t.Context(), "orders", id, producer.In(in))
				return err
			}
		}
		for i := range 20 {
			id, stays := fmt.Sprintf("%s %d", placement, i), fmt.Sprintf("stays %d", i)
			stay := reschedule(stays, time.Hour)
			if round == 0 {
				stay = schedule(stays, time.Hour)
			}
			for n, call := range []func() error{
				stay, schedule(id, time.Hour), schedule(id, time.Minute), reschedule(id, time.Second),
				func() error { _, err := client.Get(t.Context(), "orders", id); return err },
				func() error { return client.Cancel(t.Context(), "orders", id) },
			} {
				if err := call(); err != nil {
					t.Fatalf("under %s, call %d: %v", placement, n, err)
				}
			}
		}
	}
	if events, err := p.library().History(t.Context(), "orders", "stays 1"); err != nil || len(events) != 3 {
		t.Errorf("history: %v, %v", events, err)
	}
	listed := 0
	for _, err := range p.library().IDs(t.Context(), "orders", "stays ") {
		if listed++; err != nil {
			t.Fatal(err)
		}
	}
	if listed != 20 {
		t.Errorf("%d IDs listed, want 20", listed)
	}
	for i := range 60 { // more than one page for each shard
		large := producer.Request{Topic: "orders", ID: fmt.Sprintf("large %d", i), When: producer.In(time.Hour),
			Payload: make([]byte, 250<<10)}
		if _, err := p.library().Schedule(t.Context(), large); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range p.library().List(t.Context(), "orders", producer.Filter{State: task.Waiting}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The task isn't stored, but a message may be on its way, so the cancel is recorded
	// for consumers.
	if err := p.library().Cancel(t.Context(), "orders", "delivered"); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("cancel of a task that isn't there: %v", err)
	}
	if err := w.redis.Del(t.Context(), "duefleet:placement:{orders}").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.library().Get(t.Context(), "orders", "any"); !errors.Is(err, task.ErrUnknownTopic) {
		t.Fatalf("get in a topic that nobody serves: %v", err)
	}
	checkUsed(t, w.redis, line)
	checkRefused(t, w.redis)
}

// TestLeastRightsOfConsumers: with the rights in deploy/redis, a consumer remembers,
// retries and parks, and Redis refuses it nothing.
func TestLeastRightsOfConsumers(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--requirepass", adminPassword)
	w := newFixtureOn(t, fleet.Settings{
		RedisAddr: server.Addr(), RedisPrefix: "duefleet", RabbitMQURL: servertest.RabbitMQ(t),
		Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)},
		More:   map[string]fleet.Topic{"redis": {"password": adminPassword}},
	}, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Password: adminPassword})
	line := redisRights(t, "consumer")
	w.start(1)
	done := make(chan string, 10)
	c, err := consumer.New(consumer.Config{
		URLs: []string{w.settings.RabbitMQURL}, Queue: "orders.due", Policy: consumer.Fixed(10*time.Millisecond, 3),
		Options: &redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: grant(t, w.redis, line, "secret"),
			Password: "secret"},
		Handler: func(_ context.Context, d task.Delivery) error {
			if d.ID == "parked" || d.Attempt == 1 {
				return errors.New("not yet")
			}
			done <- d.ID
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for _, id := range []string{"parked", "again"} {
		if _, err := w.recorder.Client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: id,
			When: producer.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	check.Until(t, "a task that was tried again, and a parked one", rarely(func() bool {
		return len(done) == 1 && w.status().Topic("orders").Parked == 1
	}))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	checkRefused(t, w.redis)
}

// says runs a verb of scanner that must succeed with this text and no complaint.
func (w *fixture) says(text string, args ...string) {
	w.t.Helper()
	if out := must(w.t, w.scanner(args...)); !strings.Contains(out.Stdout, text) || out.Stderr != "" {
		w.t.Errorf("scanner %s says %s%s", strings.Join(args, " "), out.Stdout, out.Stderr)
	}
}

// as returns the same fixture with another configuration file, which has only its own
// credentials.
func (w *fixture) as(file string, more map[string]fleet.Topic) *fixture {
	w.t.Helper()
	other := &fixture{t: w.t, config: filepath.Join(w.dir, file), settings: w.settings}
	other.settings.RabbitMQURL = "amqp://nobody:nothing@127.0.0.1:1/"
	other.settings.More = more
	other.write()
	return other
}

func (w *fixture) awaitServed(shards int) {
	w.t.Helper()
	check.Until(w.t, "topic served", rarely(func() bool {
		s := w.status().Topic("orders")
		return s.Phase == "stable" && s.Shards == shards
	}))
}

// checkRegistered checks that Consul's catalog and store have all scanners, and that no
// scanner logged a warning.
func (w *fixture) checkRegistered(g *guarded, scanners int) {
	w.t.Helper()
	client := g.master()
	check.Until(w.t, "registered in Consul", rarely(func() bool {
		services, _, err := client.Catalog().Service("duefleet-scanner", "", nil)
		keys, _, listing := client.KV().Keys("duefleet/status/", "", nil)
		return err == nil && listing == nil && len(services) == scanners && len(keys) == scanners
	}))
	for _, s := range w.scanners {
		log, err := os.ReadFile(s.Log())
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
				w.t.Errorf("a scanner complains about its rights: %s", line)
			}
		}
	}
}

// checkQuiet checks the logs of RabbitMQ and Consul. A healthy fleet must not request
// missing or forbidden things.
func (g *guarded) checkQuiet(complaints ...string) {
	g.t.Helper()
	for _, file := range []string{"rabbitmq/rabbitmq.log", "consul/consul.log"} {
		log, err := os.ReadFile(filepath.Join(g.logs, filepath.FromSlash(file)))
		if err != nil {
			g.t.Fatal(err)
		}
		if len(log) == 0 {
			g.t.Errorf("%s is empty: nothing could be found in it", file)
		}
		for line := range strings.Lines(string(log)) {
			for _, complaint := range complaints {
				if strings.Contains(line, complaint) {
					g.t.Errorf("%s: %s", file, line)
				}
			}
		}
	}
}

// changeUnder lets producers write before, during and after a change of M from 4 to 8.
// Every scheduled task must arrive once.
func (w *fixture) changeUnder(p, operator *fixture) {
	w.t.Helper()
	w.recorder.Client = p.library()
	w.consume("orders.due")
	const far, moved = 1500, 200
	change := &source{fixture: w}
	all := orders("orders", "far", far, time.Now().Add(time.Hour), time.Minute, 0)
	w.schedule(all...)
	w.schedule(orders("orders", "near", 200, time.Now().Add(time.Second), 3*time.Second, 0)...)
	held := orders("orders", "held", 20, time.Now().Add(time.Hour), time.Minute, 0)
	w.schedule(held...)
	letGo := change.holdUp(held[:10], 8)
	change.holdUp(held[10:], 8) // its reschedule finds it at the old shard, and ends the lease
	must(w.t, operator.scanner("topic", "set", "orders", "shards=8"))
	change.migrating(8)
	for _, o := range held[10:] {
		k := fleet.Key{Topic: o.Topic, ID: o.ID}
		if err := w.recorder.Reschedule(w.t.Context(), k, time.Now().Add(time.Hour)); err != nil {
			w.t.Fatal(err)
		}
	}
	for i, o := range all { // at once, because some of them must not have moved
		k := fleet.Key{Topic: o.Topic, ID: o.ID}
		var err error
		if i < moved {
			err = w.recorder.Reschedule(w.t.Context(), k, time.Now().Add(2*time.Second))
		} else {
			err = w.recorder.Cancel(w.t.Context(), k)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	must(w.t, operator.scanner("status"))
	w.schedule(orders("orders", "meanwhile", 200, time.Now().Add(time.Second), 2*time.Second, 0)...)
	letGo()
	change.hasten(held)
	w.awaitServed(8)
	w.awaitEmpty()
	if err := w.recorder.Ledger.Check().Err(); err != nil {
		w.t.Error(err)
	}
}

// parkUnder lets a task without a queue be parked, listed, replayed and parked again.
func (w *fixture) parkUnder(p, operator *fixture) {
	w.t.Helper()
	var many []producer.Request
	for i := range 2000 { // several pages of each shard
		many = append(many, producer.Request{Topic: "orders", ID: fmt.Sprint("listed ", i), When: producer.In(time.Hour)})
	}
	for _, r := range p.library().ScheduleMany(w.t.Context(), many) {
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
	must(w.t, operator.scanner("tasks", "ls", "--topic", "orders", "-o", "json"))
	for _, fixture := range []*fixture{operator, p} {
		must(w.t, fixture.producer("cancel", "--topic", "orders", "--id", "listed 7"))
		must(w.t, fixture.producer("cancel", "--topic", "orders", "--id-prefix", "listed ", "--yes"))
		must(w.t, p.producer("schedule", "--topic", "orders", "--id", "listed 7", "--in", "1h")) // for the next call
	}
	// The task isn't stored, but a message may be on its way, so the cancel is recorded
	// for consumers.
	if err := operator.library().Cancel(w.t.Context(), "orders", "delivered"); !errors.Is(err, task.ErrNotFound) {
		w.t.Errorf("cancel of a task that isn't there: %v", err)
	}
	if err := w.channel().QueueUnbind("orders.due", "order.due", "orders", nil); err != nil {
		w.t.Fatal(err)
	}
	must(w.t, p.producer("schedule", "--topic", "orders", "--id", "stray", "--in", "0s"))
	for _, change := range [][]string{{"replay", "--yes"}, {"purge", "--yes"}} {
		check.Until(w.t, "a task to be parked", rarely(func() bool { return w.status().Topic("orders").Parked == 1 }))
		must(w.t, operator.scanner("parked", "ls", "--topic", "orders"))
		must(w.t, operator.scanner(slices.Concat([]string{"parked"}, change, []string{"--topic", "orders", "--all"})...))
	}
}

// library returns the public library's client with this configuration's credentials.
func (w *fixture) library() *producer.Client {
	w.t.Helper()
	user := w.settings.More["redis"]
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{
			Addrs: []string{w.settings.RedisAddr}, Username: fmt.Sprint(user["username"]),
			Password: fmt.Sprint(user["password"]),
		},
		Prefix: w.settings.RedisPrefix,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// checkUsed checks that Redis executed every command that the line allows.
func checkUsed(t *testing.T, admin redis.UniversalClient, line []string) {
	t.Helper()
	stats, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range line {
		command, ok := strings.CutPrefix(word, "+")
		if ok && !strings.Contains(stats, "cmdstat_"+command+":") {
			t.Errorf("the right %s of %s was never used", word, line[2])
		}
	}
}

// checkRefused checks that Redis refused nothing.
func checkRefused(t *testing.T, admin redis.UniversalClient) {
	t.Helper()
	for _, refusal := range refusals(t.Context(), t, admin, func(string) bool { return true }) {
		t.Error(refusal)
	}
}

// refusals returns what Redis refused to some users, from its ACL log. It ignores CLIENT:
// since Redis 7.2, clients try to send their name and work without it.
func refusals(ctx context.Context, t *testing.T, admin redis.UniversalClient,
	whose func(user string) bool) (found []string) {
	t.Helper()
	log, err := admin.ACLLog(ctx, mostRefusals).Result()
	if err != nil {
		t.Errorf("read the ACL log: %v", err)
	}
	for _, e := range log {
		if whose(e.Username) && !strings.HasPrefix(e.Object, "client|") {
			found = append(found, fmt.Sprintf("Redis refused %s: %s %s (%s, %d times)", e.Username, e.Reason, e.Object,
				e.Context, e.Count))
		}
	}
	return found
}
