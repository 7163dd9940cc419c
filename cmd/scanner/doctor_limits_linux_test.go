package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	// wholeRun is the longest time that doctor may take. The rest is for a slow machine.
	wholeRun = 10*time.Second + 5*time.Second
	// atOnce is the longest time that doctor may take after a signal, with the same rest.
	atOnce = time.Second + 5*time.Second
)

// ownRabbitMQ returns a node that a test may break.
func ownRabbitMQ(t *testing.T) *servers.RabbitMQ {
	t.Helper()
	node, err := servers.StartRabbitMQ(check.Context(t), servers.RabbitMQConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Resume() // a stopped process ends only after it
		_ = node.Kill()
	})
	return node
}

const intakeTopics = "topics: {orders: {shards: 1, declare: {queue: orders.due}, intake: {exchange: orders.in, " +
	"queue: orders.in}}}\n"

// intakeOperator returns an operator whose topic has an intake at a broker, and two scanners
// that report no problem.
func intakeOperator(t *testing.T, broker string) *operator {
	t.Helper()
	o := newOperator(t, "rabbitmq: {urls: ['"+broker+"']}\n"+intakeTopics)
	o.serve("orders", 1)
	const document = "declare: {queue: orders.due}\nintake: {exchange: orders.in, queue: orders.in}\nshards: 1\n"
	if err := o.store.Registry().SaveDocument(t.Context(), "orders", []byte(document)); err != nil {
		t.Fatal(err)
	}
	o.live("one")
	o.live("two")
	return o
}

// live makes a member that reports problems.
func (o *operator) live(name string, problems ...problem.Problem) {
	o.t.Helper()
	o.member(name).Store(&balance.Member{Applied: 7, Problems: problems})
	o.heard(name, func(m balance.Member) bool { return m.Applied == 7 })
}

// timed returns doctor's exit code and output, and fails the test if doctor took too long.
func (o *operator) timed() (code int, text string) {
	o.t.Helper()
	told := &check.Log{}
	begun := time.Now()
	ended := o.begin(o.t.Context(), told, "doctor")
	select {
	case code = <-ended:
	case <-time.After(wholeRun):
		o.t.Fatalf("doctor still runs after %s: %s", wholeRun, told)
	}
	o.t.Logf("doctor took %s: code %d\n%s", time.Since(begun).Round(time.Millisecond), code, told)
	return code, told.String()
}

// unasked checks that doctor says once that it couldn't check something, and that it takes
// that for no fault.
func (o *operator) unasked(text, what, why string) {
	o.t.Helper()
	line := "not checked: " + what + ": "
	if strings.Count(text, line) != 1 || !strings.Contains(text, why) {
		o.t.Errorf("want once %q, with %q:\n%s", line, why, text)
	}
	for l := range strings.Lines(text) {
		if strings.Contains(l, what) && !strings.HasPrefix(l, line) {
			o.t.Errorf("%s isn't checked, and doctor says %s", what, l)
		}
	}
}

// TestDoctorEndsDuringAnAlarm: a blocked broker answers nothing on a connection that
// published, so doctor tries no rights of the intake then.
func TestDoctorEndsDuringAnAlarm(t *testing.T) {
	t.Parallel()
	node := ownRabbitMQ(t)
	o := intakeOperator(t, node.URL("/"))
	if _, err := node.Ctl(t.Context(), "set_vm_memory_high_watermark", "absolute", "1MB"); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(node.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseDeadline(time.Now()) }()
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "", "nowhere", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	check.Receive(t, "the alarm", blocked)
	code, text := o.timed()
	if code != cli.Failed || !strings.Contains(text, "RabbitMQ blocks publishers") {
		t.Errorf("code %d: %s", code, text)
	}
	o.unasked(text, "topic orders intake rights", "blocks publishers")
}

// TestDoctorEndsWhateverHangs: servers that accept connections and answer nothing, and an
// address that swallows packets, are reported as not checked. The scanners' own problems are
// the finding.
func TestDoctorEndsWhateverHangs(t *testing.T) {
	t.Parallel()
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		node := ownRabbitMQ(t)
		o := intakeOperator(t, node.URL("/"))
		if err := node.Pause(); err != nil {
			t.Fatal(err)
		}
		code, text := o.timed()
		o.unasked(text, "rabbitmq.connection", "no answer within 5s")
		if code != cli.Done {
			t.Errorf("the scanners report no problem, and the code is %d", code)
		}
		o.live("three", problem.New(problem.RabbitMQUnreachable, "", "not connected to RabbitMQ: timeout"))
		code, text = o.timed()
		if code != cli.Failed || !strings.Contains(text, "scanner three: not connected to RabbitMQ") {
			t.Errorf("code %d, want the scanner's problem: %s", code, text)
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := servertest.OwnRedis(t)
		o := newOperator(t, "rabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n"+intakeTopics)
		o.configure(t, "redis: {addrs: ['"+server.Addr()+"'], prefix: x}\n")
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Resume() })
		code, text := o.timed()
		o.unasked(text, "redis.connection", "no answer within 5s")
		if code != cli.Failed || !strings.Contains(text, "couldn't ask the fleet") {
			t.Errorf("nothing is known of the fleet, and the code is %d: %s", code, text)
		}
		if !strings.Contains(text, "rabbitmq.connection") {
			t.Errorf("doctor doesn't ask RabbitMQ: %s", text)
		}
	})
	t.Run("consul", func(t *testing.T) {
		t.Parallel()
		servertest.Need(t, "consul")
		agent, err := servers.StartConsul(check.Context(t), servers.ConsulConfig{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = agent.Resume(), agent.Kill() })
		o := newOperator(t, "consul: {addr: '"+agent.Addr()+"'}\nrabbitmq: {urls: ['"+servertest.RabbitMQ(t)+"']}\n")
		o.live("one")
		o.live("two")
		if err := agent.Pause(); err != nil {
			t.Fatal(err)
		}
		code, text := o.timed()
		o.unasked(text, "consul.connection", "no answer within 5s")
		if code != cli.Done {
			t.Errorf("the scanners report no problem, and the code is %d", code)
		}
	})
	t.Run("blackhole", func(t *testing.T) {
		t.Parallel()
		addr := blackhole(t)
		o := newOperator(t, fmt.Sprintf("consul: {addr: '%s'}\nrabbitmq: {urls: ['amqp://guest:guest@%s/']}\n", addr, addr))
		o.configure(t, "redis: {addrs: ['"+addr+"'], prefix: x}\n")
		code, text := o.timed()
		if code != cli.Failed || !strings.Contains(text, "couldn't ask the fleet") {
			t.Errorf("code %d: %s", code, text)
		}
		for _, check := range []string{"redis", "consul", "rabbitmq"} {
			o.unasked(text, check+".connection", "no answer within 5s")
		}
	})
}

// blackhole returns an address to which no connection comes up: the kernel drops the packets
// for a listener whose queue is full.
func blackhole(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	at, named := syscall.Getsockname(fd)
	if err = errors.Join(err, named); err != nil {
		t.Fatal(err)
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return addr // the queue is full
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// TestDoctorEndsAtASignal: it prints the findings that it has by then.
func TestDoctorEndsAtASignal(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	o := newOperator(t, "rabbitmq: {urls: ['amqp://guest:guest@"+blackhole(t)+"/']}\n"+intakeTopics)
	o.configure(t, "redis: {addrs: ['"+server.Addr()+"'], prefix: x}\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := &check.Log{}
	ended := o.begin(ctx, told, "doctor")
	rdb := redis.NewClient(servertest.RedisOptions(server.Addr()).Simple())
	defer rdb.Close()
	check.Until(t, "doctor's last question to Redis", func() bool {
		info, err := rdb.Info(t.Context(), "commandstats").Result()
		return err == nil && regexp.MustCompile(`cmdstat_eval:calls=[5-9]`).MatchString(info) // four are for rights
	})
	cancel()
	signaled := time.Now()
	code := check.Receive(t, "doctor to end", ended)
	if took := time.Since(signaled); took > atOnce {
		t.Errorf("doctor ended %s after the signal", took)
	}
	if text := told.String(); code != cli.Failed || !strings.Contains(text, "redis.rights") ||
		!strings.Contains(text, "not checked: rabbitmq.connection: interrupted") {
		t.Errorf("code %d: %s", code, text)
	}
}
