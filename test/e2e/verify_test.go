package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// verifying is a `producer verify` that runs.
type verifying struct {
	w              *fixture
	client         *producer.Client
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

// verified is the part of the report that these tests read.
type verified struct {
	Interrupted bool     `json:"interrupted"`
	Scheduled   int      `json:"scheduled"`
	Delivered   int      `json:"delivered"`
	Lost        int      `json:"lost"`
	Early       int      `json:"early"`
	Marked      int      `json:"repeated_marked"`
	Unmarked    int      `json:"repeated_unmarked"`
	EarlyTasks  []string `json:"early_tasks"`
	LostTasks   []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	} `json:"lost_tasks"`
	UnmarkedTasks []string `json:"unmarked_tasks"`
	Reconnects    int      `json:"rabbitmq_connections_lost"`
	Foreign       int      `json:"foreign"`
	P50           float64  `json:"late_p50_ms"`
	Max           float64  `json:"late_max_ms"`
	Histogram     []struct {
		Tasks int `json:"tasks"`
	} `json:"late_histogram"`
	ClockError float64 `json:"clock_error_ms"`
	Outages    int     `json:"schedule_outages"`
}

// newVerifyFixture returns a fleet of scanners for topic orders.
func newVerifyFixture(t *testing.T, scanners int, changes fleet.Topic) *fixture {
	t.Helper()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", changes)})
	w.start(scanners)
	return w
}

// verify starts `producer verify orders` with arguments. It ends with the test.
func (w *fixture) verify(args ...string) *verifying {
	w.t.Helper()
	client, err := producer.New(producer.Config{Redis: w.redis, Prefix: w.settings.RedisPrefix})
	check.OK(w.t, err)
	v := &verifying{w: w, client: client, ended: make(chan struct{})}
	args = append([]string{"verify", "orders", "--config", w.file(operatorRole), "-o", "json"}, args...)
	v.cmd = exec.CommandContext(w.t.Context(), programs.Producer, args...)
	v.cmd.Env = []string{"HOME=" + w.t.TempDir()}
	v.cmd.Stdout, v.cmd.Stderr = &v.stdout, &v.stderr
	check.OK(w.t, v.cmd.Start())
	go func() {
		_ = v.cmd.Wait() // the tests read the exit code
		close(v.ended)
	}()
	return v
}

// end waits for the end, checks the exit code and that no queue and no task remain, and
// returns the report.
func (v *verifying) end(code int) (r verified) {
	v.w.t.Helper()
	check.Closed(v.w.t, "the end of verify", v.ended)
	v.w.t.Logf("%s%s", v.stdout.String(), v.stderr.String())
	if got := v.cmd.ProcessState.ExitCode(); got != code {
		v.w.t.Fatalf("exit code %d, want %d", got, code)
	}
	check.OK(v.w.t, json.Unmarshal(v.stdout.Bytes(), &r))
	prefix := struct {
		Prefix string `json:"id_prefix"`
	}{}
	check.OK(v.w.t, json.Unmarshal(v.stdout.Bytes(), &prefix))
	if v.anID() != "" {
		v.w.t.Error("a task is left")
	}
	var gone *amqp.Error
	_, err := v.w.channel().QueueDeclarePassive(queueOf(prefix.Prefix), true, false, false, false, nil)
	if !errors.As(err, &gone) || gone.Code != amqp.NotFound {
		v.w.t.Errorf("the queue is left: %v", err)
	}
	return r
}

// anID returns the ID of a stored task of verify, "" if there is none.
func (v *verifying) anID() (id string) {
	v.w.t.Helper()
	for id, err := range v.client.IDs(v.w.t.Context(), "orders", "verify-") {
		check.OK(v.w.t, err)
		return id
	}
	return ""
}

// awaitID waits until a task is stored, and returns its ID.
func (v *verifying) awaitID() (id string) {
	v.w.t.Helper()
	check.Until(v.w.t, "a task to be stored", rarely(func() bool { id = v.anID(); return id != "" }))
	return id
}

// awaitDelivery waits until RabbitMQ has confirmed a task's message.
func (v *verifying) awaitDelivery(id string) {
	v.w.t.Helper()
	check.Until(v.w.t, "the task to be delivered", rarely(func() bool {
		_, err := v.client.Get(v.w.t.Context(), "orders", id)
		return errors.Is(err, task.ErrNotFound)
	}))
}

// awaitNumber waits until a task with this number or a later one is stored.
func (v *verifying) awaitNumber(n int) {
	v.w.t.Helper()
	check.Until(v.w.t, fmt.Sprintf("task %d to be stored", n), rarely(func() bool {
		id := v.anID()
		found, err := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
		return err == nil && found >= n
	}))
}

// queueOf returns the queue for tasks whose IDs begin with a run's prefix.
func queueOf(id string) string {
	run := strings.Split(strings.TrimPrefix(id, "verify-"), "-")
	return "duefleet.verify." + run[0] + "-" + run[1]
}

// publish publishes a message of a task to verify's queue by hand.
func (v *verifying) publish(id string, due time.Time) {
	v.w.t.Helper()
	check.OK(v.w.t, v.w.channel().PublishWithContext(v.w.t.Context(), "", queueOf(id), false, false, amqp.Publishing{
		MessageId: id, Type: "orders",
		Headers: amqp.Table{task.HeaderDue: due.UnixMilli(), task.HeaderScheduled: due.UnixMilli() - 1000},
	}))
}

// TestVerify: a good installation passes, and verify's messages reach no other queue.
func TestVerify(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 2, nil)
	r := w.verify("--rate", "200", "--for", "2s", "--delay", "500ms").end(0)
	if r.Scheduled < 300 || r.Scheduled > 401 || r.Delivered != r.Scheduled || r.Interrupted {
		t.Errorf("%d scheduled, %d delivered, want about 400", r.Scheduled, r.Delivered)
	}
	counted := 0
	for _, b := range r.Histogram {
		counted += b.Tasks
	}
	if counted != r.Delivered || r.P50 <= 0 || r.Max < r.P50 || r.ClockError <= 0 || r.Foreign != 0 {
		t.Errorf("%d tasks in the histogram of %d; %+v", counted, r.Delivered, r)
	}
	q, err := w.channel().QueueDeclarePassive("orders.due", true, false, false, false, nil)
	check.OK(t, err)
	check.Equal(t, "messages in the application's queue", q.Messages, 0)
	w.stop()
}

// TestVerifyNamesALostTask: a task that vanishes from Redis makes verify fail.
func TestVerifyNamesALostTask(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, nil)
	v := w.verify("--rate", "20", "--for", "1s", "--delay", "8s", "--wait", "1s")
	var lost string
	check.Until(t, "a task to vanish", func() bool {
		lost = v.awaitID()
		return v.client.Cancel(t.Context(), "orders", lost) == nil
	})
	r := v.end(1)
	if r.Lost != 1 || len(r.LostTasks) != 1 || r.LostTasks[0].ID != lost || r.LostTasks[0].State != "not stored" {
		t.Errorf("%+v, want %s to be lost", r, lost)
	}
	w.stop()
}

// TestVerifyFindsAParkedTask: what the broker refuses is parked, and verify says so.
func TestVerifyFindsAParkedTask(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, fleet.Topic{"max_attempts": 1})
	v := w.verify("--rate", "20", "--for", "1s", "--delay", "4s", "--wait", "1s")
	id := v.awaitID()
	check.OK(t, w.channel().QueueUnbind(queueOf(id), queueOf(id), "orders", nil))
	r := v.end(1)
	if r.Lost == 0 || len(r.LostTasks) == 0 || r.LostTasks[0].State != string(task.Parked) {
		t.Errorf("%+v, want parked tasks", r)
	}
	w.stop()
}

// TestVerifySeesARepeat: a second message without a mark makes verify fail.
func TestVerifySeesARepeat(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, nil)
	v := w.verify("--rate", "20", "--for", "3s", "--delay", "1s")
	id := v.awaitID()
	v.awaitDelivery(id)
	v.publish(id, time.Now())
	r := v.end(1)
	if r.Unmarked != 1 || len(r.UnmarkedTasks) != 1 || r.UnmarkedTasks[0] != id || r.Early != 0 || r.Lost != 0 {
		t.Errorf("%+v, want %s to be repeated", r, id)
	}
	w.stop()
}

// TestVerifySeesAnEarlyTask: a message before the due time makes verify fail.
func TestVerifySeesAnEarlyTask(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, nil)
	v := w.verify("--rate", "20", "--for", "1s", "--delay", "8s")
	v.awaitID()
	var last producer.Stored
	for s, err := range v.client.List(t.Context(), "orders", producer.Filter{Prefix: "verify-"}) {
		check.OK(t, err)
		if s.Due.After(last.Due) {
			last = s
		}
	}
	v.publish(last.ID, last.Due)
	r := v.end(1)
	if r.Early != 1 || len(r.EarlyTasks) != 1 || !strings.HasPrefix(r.EarlyTasks[0], last.ID+" by ") {
		t.Errorf("%+v, want %s to be early", r, last.ID)
	}
	w.stop()
}

// TestVerifyWhileScannersDie: a killed scanner causes marked repeats at most.
func TestVerifyWhileScannersDie(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 2, fleet.Topic{"lease": "3s"})
	v := w.verify("--rate", "300", "--for", "4s", "--delay", "1s")
	for _, s := range w.scanners {
		v.awaitDelivery(v.awaitID())
		check.OK(t, s.Kill())
		check.OK(t, s.Start(check.Context(t)))
	}
	r := v.end(0)
	check.Equal(t, "delivered", r.Delivered, r.Scheduled)
	w.stop()
}

// TestVerifyWithoutRabbitMQ: verify survives the loss of its connection.
func TestVerifyWithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, nil)
	to, err := url.Parse(w.settings.RabbitMQURL)
	check.OK(t, err)
	proxy := faults.Proxy(t, faults.Local, to.Host)
	to.Host = proxy.Listen
	v := w.verify("--rate", "200", "--for", "3s", "--delay", "1s", "--rabbitmq-url", to.String())
	v.awaitID()
	proxy.Stop()
	check.OK(t, proxy.Start())
	r := v.end(0)
	if r.Reconnects < 1 || r.Delivered != r.Scheduled {
		t.Errorf("%+v, want a lost connection and no lost task", r)
	}
	w.stop()
}

// TestVerifyWithoutRedis: an outage of Redis is no loss.
func TestVerifyWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t) // clients of a cluster pass by a proxy
	w := newFixtureOn(t, fleet.Settings{RedisAddr: server.Addr(), RedisPrefix: "p", RabbitMQURL: servertest.RabbitMQ(t),
		Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)}}, servertest.RedisOptions(server.Addr()))
	w.start(1)
	proxy := faults.Proxy(t, faults.Local, server.Addr())
	v := w.verify("--rate", "200", "--for", "4s", "--delay", "500ms", "--redis-addr", proxy.Listen)
	v.awaitID()
	proxy.Stop()
	time.AfterFunc(1500*time.Millisecond, func() { _ = proxy.Start() })
	r := v.end(0)
	if r.Outages < 1 || r.Delivered != r.Scheduled {
		t.Errorf("%+v, want an outage and no lost task", r)
	}
	w.stop()
}

// TestVerifyInterrupted: after Ctrl-C, neither tasks nor the queue remain.
func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	w := newVerifyFixture(t, 1, nil)
	v := w.verify("--rate", "100", "--for", "1h", "--delay", "1h")
	v.awaitID()
	check.OK(t, v.cmd.Process.Signal(os.Interrupt))
	if r := v.end(1); !r.Interrupted || r.Lost != 0 || !strings.HasSuffix(v.stderr.String(), "; interrupted\n") {
		t.Errorf("%+v, %s", r, v.stderr.String())
	}
	w.stop()
}

// TestVerifyRefuses: what can't work is refused before a task is scheduled, with a reason.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	fanout := map[string]any{"type": "fanout", "queue": "all.due", "queue_type": "classic"}
	w := newFixture(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", nil),
		"paused": fleet.DeclaredTopic("paused", fleet.Topic{"paused": true}),
		"slow":   fleet.DeclaredTopic("slow", fleet.Topic{"rate": 10}),
		"all":    fleet.DeclaredTopic("all", fleet.Topic{"declare": fanout}),
		"hidden": {"shards": 1, "exchange": "hidden", "routing_key": "x"},
	})
	w.exchange("headers", "hidden", "", "")
	w.start(1)
	refuse := func(topic, want string, args ...string) {
		t.Helper()
		out := w.runVerify(operatorRole, topic, args...)
		if out.Code != 1 || !strings.Contains(out.Stderr, want) || strings.Contains(out.Stderr, "SECRET") {
			t.Errorf("%s: exit code %d, want 1 and %q: %s", topic, out.Code, want, out.Stderr)
		}
	}
	refuse("mails", "unknown topic mails")
	refuse("paused", "topic paused is paused; scanner topic resume paused")
	refuse("slow", "at most 10 tasks per second (its setting rate); give --rate 10 or less")
	refuse("all", `exchange "all" is of type fanout: the queues of applications would get the tasks`)
	refuse("hidden", `exchange "hidden" is of type headers`)
	refuse("orders", "check exchange \"nowhere\"", "--exchange", "nowhere")
	refuse("orders", "and rabbitmq.urls", "--rabbitmq-url", "amqp://a:SECRET@127.0.0.1:1/")
	refuse("orders", "connect to RabbitMQ at "+hostOf(t, w.settings.RabbitMQURL),
		"--rabbitmq-url", strings.Replace(w.settings.RabbitMQURL, "guest:guest", "guest:SECRET", 1))
	must(t, w.runVerify(operatorRole, "all", "--shared", "--rate", "20", "--for", "1s", "--delay", "100ms"))
	must(t, w.runVerify(producerRole, "orders", "--exchange", "orders", "--rate", "20", "--for", "1s", "--delay", "100ms"))
	w.stop()
	refuse("orders", "no scanner is alive under the prefix "+w.settings.RedisPrefix)
}

// runVerify runs verify to its end, as a role.
func (w *fixture) runVerify(as role, topic string, args ...string) fleet.Output {
	w.t.Helper()
	args = append([]string{"verify", topic, "--config", w.file(as)}, args...)
	return run(w.t, fleet.Command{Path: programs.Producer, Args: args})
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	check.OK(t, err)
	return u.Host
}

// TestVerifyWhileEverythingDies: kill -9 of RabbitMQ, Redis and a scanner, and a change of M,
// cost time but no task. Redis syncs each write. RabbitMQ dies seconds after the quorum queue
// was made: RabbitMQ 3.10 may not recover one that it made just before.
func TestVerifyWhileEverythingDies(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server", "rabbitmq-server")
	users := filepath.Join(t.TempDir(), "users.acl")
	check.OK(t, os.WriteFile(users, nil, 0o600))
	store := servertest.OwnRedis(t, "--aclfile", users, "--appendonly", "yes", "--appendfsync", "always")
	broker, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() { _ = broker.Kill() })
	w := newFixtureOn(t, fleet.Settings{
		RedisAddr: store.Addr(), RedisPrefix: "duefleet", RabbitMQURL: broker.URL("/"),
		Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{
			"lease": "3s", "declare": map[string]any{"queue": "orders.due", "queue_type": "quorum"},
		})},
	}, servertest.RedisOptions(store.Addr()))
	check.OK(t, w.redis.Do(t.Context(), "ACL", "SAVE").Err())
	w.start(2)
	v := w.verify("--rate", "200", "--for", "15s", "--delay", "2s")
	next := 0
	for _, kill := range []func(){
		func() {
			check.OK(t, w.scanners[0].Kill())
			check.OK(t, w.scanners[0].Start(check.Context(t)))
		},
		func() {
			check.OK(t, store.Kill())
			check.OK(t, store.Restart(t.Context()))
		},
		func() {
			w.settings.Topics["orders"] = w.settings.Topics["orders"].With(fleet.Topic{"shards": 7})
			w.write()
		},
		func() {
			check.OK(t, broker.Kill())
			check.OK(t, broker.Restart(t.Context()))
		},
	} {
		next += 250
		v.awaitNumber(next)
		kill()
	}
	r := v.end(0)
	if r.Delivered != r.Scheduled || r.Reconnects == 0 {
		t.Errorf("%+v", r)
	}
	check.Equal(t, "shards", w.status().Topic("orders").Shards, 7)
	w.stop()
}
