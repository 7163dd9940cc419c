package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// rotation is a fleet that reads passwords, tokens and certificates from files, which
// change.
type rotation struct {
	w   *fixture
	g   *guarded
	dir string
}

// path returns the path of a secret's file.
func (r *rotation) path(name string) string { return filepath.Join(r.dir, name) }

// put writes a secret's file in one step.
func (r *rotation) put(name string, content ...string) {
	r.w.t.Helper()
	check.OK(r.w.t, fleet.WriteFile(r.path(name), []byte(strings.Join(content, ""))))
}

// putPair writes a certificate and its key, one after the other.
func (r *rotation) putPair(p pair) {
	r.w.t.Helper()
	r.put("client.pem", read(r.w.t, p.cert))
	r.put("client.key", read(r.w.t, p.key))
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	check.OK(t, err)
	return string(content)
}

// newRotation starts servers that require a certificate and a password, and three
// scanners that read theirs from files.
func newRotation(t *testing.T) *rotation {
	t.Helper()
	g := newGuarded(t)
	r := &rotation{g: g, dir: t.TempDir(), w: g.fixture("rotation",
		map[string]fleet.Topic{"consul": {"token": masterToken}})}
	r.put("redis", rolePassword+"\n")
	r.put("rabbitmq", "amqps://fleet:old@"+g.rabbitmqTLS+"/\n")
	r.put("consul", g.token("old", rotationPolicy))
	r.put("ca.pem", read(t, g.ca.file))
	client := g.ca.issue("client", time.Now().Add(time.Hour))
	r.putPair(client)
	g.ctl("add_user", "fleet", "old")
	g.ctl("set_permissions", "-p", "/", "fleet", ".*", ".*", ".*")
	r.w.scannerEnv = []string{
		"DUEFLEET_REDIS_ADDRS=" + g.redisTLS, "DUEFLEET_REDIS_PASSWORD_FILE=" + r.path("redis"),
		"DUEFLEET_RABBITMQ_URLS_FILE=" + r.path("rabbitmq"),
		"DUEFLEET_CONSUL_ADDR=" + g.consulTLS, "DUEFLEET_CONSUL_TOKEN_FILE=" + r.path("consul"),
	}
	r.secure("REDIS", r.path("ca.pem"), pair{r.path("client.pem"), r.path("client.key")})
	r.secure("RABBITMQ", g.ca.file, client)
	r.secure("CONSUL", g.ca.file, client)
	must(t, r.w.scanner("topic", "set", "orders", "shards=4", "exchange=rotation", "routing_key=rotation", "window=100",
		"batch=100", "lease=10s",
		"declare.queue=rotation.due", "declare.queue_type=classic"))
	r.w.start(3)
	r.w.awaitServed(4)
	r.w.consume("rotation.due")
	return r
}

// secure enables TLS for a section.
func (r *rotation) secure(section, ca string, client pair) {
	for key, value := range map[string]string{"ENABLED": "true", "CA_FILE": ca, "CERT_FILE": client.cert,
		"KEY_FILE": client.key} {
		r.w.scannerEnv = append(r.w.scannerEnv, "DUEFLEET_"+section+"_TLS_"+key+"="+value)
	}
}

// rotationPolicy holds the rights of a scanner's token.
const rotationPolicy = `
key_prefix "rotation/" { policy = "write" }
service_prefix "" { policy = "write" }
node_prefix "" { policy = "read" }
agent_prefix "" { policy = "read" }`

// TestRotation: all secrets are replaced as docs/deploy.md describes, while 1,000
// tasks per second fall due. They are the passwords of Redis and RabbitMQ, Consul's
// token, the authority, and the certificates of server and client. No task is lost or
// early, no scanner needs a restart, and a refused password isn't retried all the time.
func TestRotation(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	feeding, stop := context.WithCancel(t.Context())
	var feed errgroup.Group
	feed.Go(func() error { return r.feed(feeding) })
	t.Cleanup(func() { stop(); _ = feed.Wait() })
	r.flows("at first")

	r.rotateRedis()
	r.rotateRabbitMQ()
	r.rotateConsul()
	r.rotateAuthority()
	if n := r.refusedPasswords(); n != 0 {
		t.Errorf("Redis refused %d passwords, want none: the old one was valid until the new one was in the file", n)
	}
	r.rotateTooLate()

	stop()
	check.OK(t, feed.Wait())
	for _, s := range r.w.scanners {
		if ended(s) {
			t.Errorf("%s ended", s.Log())
		}
	}
	report := r.w.finish()
	t.Logf("%d delivered, %d arrived twice", report.Delivered, report.Duplicated)
	r.w.checkRepeats()
	report.Duplicated = 0 // repeats of tasks in flight when connections were cut, all marked
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}

// feed schedules 1,000 tasks for every second until ctx ends.
func (r *rotation) feed(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for i := 0; ; i++ {
		tasks := orders("orders", fmt.Sprintf("o%04d", i), 1000, time.Now().Add(time.Second), time.Second, 100)
		if err := r.w.recorder.Schedule(r.w.t.Context(), tasks...); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
	}
}

// flows waits until more tasks have arrived than could be in flight, and all scanners are
// ready.
func (r *rotation) flows(when string) {
	r.w.t.Helper()
	const inFlight = 3 * 100
	r.w.awaitCount(r.w.recorder.Ledger.Count() + inFlight + 1000)
	for _, s := range r.w.scanners {
		check.Until(r.w.t, s.Log()+" to be ready "+when,
			rarely(func() bool { return s.Get(r.w.t.Context(), "/readyz", io.Discard) == nil }))
	}
}

// cut makes the scanners reconnect to Redis.
func (r *rotation) cut() {
	r.w.t.Helper()
	if n, err := r.w.redis.ClientKillByFilter(r.w.t.Context(), "USER", r.w.user(scannerRole)).Result(); err != nil ||
		n == 0 {
		r.w.t.Fatalf("CLIENT KILL: %d connections, %v", n, err)
	}
}

func (r *rotation) do(args ...any) {
	r.w.t.Helper()
	check.OK(r.w.t, r.w.redis.Do(r.w.t.Context(), args...).Err())
}

func (r *rotation) rotateRedis() {
	r.w.t.Helper()
	r.do("ACL", "SETUSER", r.w.user(scannerRole), ">new")
	r.put("redis", "new\n")
	r.do("ACL", "SETUSER", r.w.user(scannerRole), "<"+rolePassword)
	r.cut()
	r.flows("after Redis's password changed")
}

func (r *rotation) rotateRabbitMQ() {
	r.w.t.Helper()
	r.g.ctl("change_password", "fleet", "new")
	r.put("rabbitmq", "amqps://fleet:new@"+r.g.rabbitmqTLS+"/\n")
	r.g.ctl("close_all_user_connections", "fleet", "the password was changed")
	r.flows("after RabbitMQ's password changed")
}

func (r *rotation) rotateConsul() {
	r.w.t.Helper()
	old := read(r.w.t, r.path("consul"))
	r.put("consul", r.g.token("new", rotationPolicy), "\n")
	tokens, _, err := r.g.master().ACL().TokenList(nil)
	for _, token := range tokens {
		if token.SecretID == old {
			_, err = r.g.master().ACL().TokenDelete(token.AccessorID, nil)
			old = ""
		}
	}
	if err != nil || old != "" {
		r.w.t.Fatalf("the old token: %v", err)
	}
	// The command returns when every scanner has read the document.
	must(r.w.t, r.w.scanner("topic", "set", "orders", "max_attempts=7"))
}

// rotateAuthority replaces the authority, and the certificates of Redis and its clients.
func (r *rotation) rotateAuthority() {
	r.w.t.Helper()
	next := newAuthority(r.w.t, "next")
	both := filepath.Join(next.dir, "both.pem")
	check.OK(r.w.t, os.WriteFile(both, []byte(read(r.w.t, r.g.ca.file)+read(r.w.t, next.file)), 0o600))
	r.put("ca.pem", read(r.w.t, both))
	own := next.issue("server", time.Now().Add(time.Hour))
	r.do("CONFIG", "SET", "tls-cert-file", own.cert, "tls-key-file", own.key, "tls-ca-cert-file", both)
	r.cut()
	r.flows("after Redis's certificate changed")

	end := time.Now().Add(50 * time.Minute)
	r.putPair(next.issue("client-new", end))
	r.put("ca.pem", read(r.w.t, next.file))
	r.do("CONFIG", "SET", "tls-ca-cert-file", next.file)
	r.cut()
	r.flows("after the client's certificate changed")
	for _, s := range r.w.scanners {
		if got := expiry(r.w.t, s, "redis", r.path("client.pem")); got != end.Unix() {
			r.w.t.Errorf("%s: the certificate expires at %d by its metrics, want %d", s.Log(), got, end.Unix())
		}
	}
}

// expiry returns when a certificate expires, according to a scanner's metrics.
func expiry(t *testing.T, s *fleet.Scanner, use, file string) int64 {
	t.Helper()
	for _, series := range readMetrics(t, s)["duefleet_certificate_expiry_timestamp_seconds"].GetMetric() {
		labels := map[string]string{}
		for _, l := range series.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["use"] == use && labels["file"] == file {
			return int64(series.GetGauge().GetValue())
		}
	}
	return 0
}

// rotateTooLate makes the mistake to remove the old password before the new one is in the
// file.
func (r *rotation) rotateTooLate() {
	r.w.t.Helper()
	r.do("ACL", "SETUSER", r.w.user(scannerRole), "resetpass", ">late")
	began := time.Now()
	r.cut()
	for _, s := range r.w.scanners {
		r.w.awaitAnswer(s, "redis: down")
	}
	tried := r.refusedPasswords()
	check.Until(r.w.t, "the password to be tried again", rarely(func() bool { return r.refusedPasswords() > tried }))
	n, most := r.refusedPasswords(), mostRefused(len(r.w.scanners), time.Since(began))
	r.w.t.Logf("%d passwords were refused within %s", n, time.Since(began))
	if n > most {
		r.w.t.Errorf("Redis refused %d passwords within %s, want %d at most", n, time.Since(began), most)
	}
	r.put("redis", "late\n")
	r.flows("after a password that came too late")
	r.do("ACL", "LOG", "RESET") // the test's cleanup checks this log
}

// mostRefused returns how often Redis may refuse a password. At the first refusal, all
// connections of a full pool may be trying it. After that, a scanner tries once a second.
func mostRefused(scanners int, within time.Duration) int {
	pool := 10 * runtime.GOMAXPROCS(0)
	return scanners * (pool + int(within/time.Second) + 1)
}

// refusedPasswords counts the scanners' passwords that Redis has refused so far.
func (r *rotation) refusedPasswords() int {
	r.w.t.Helper()
	entries, err := r.w.redis.ACLLog(r.w.t.Context(), 100_000).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.w.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Reason == "auth" && e.Username == r.w.user(scannerRole) {
			n += int(e.Count)
		}
	}
	return n
}
