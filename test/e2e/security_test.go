package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestGuarded runs all tests that need servers with certificates, passwords or tokens, on
// one set of servers.
func TestGuarded(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	t.Run("TLS", func(t *testing.T) { t.Parallel(); testTLS(g.in(t)) })
	t.Run("Refusals", func(t *testing.T) { t.Parallel(); testRefusals(g.in(t)) })
	t.Run("Secrets", func(t *testing.T) { t.Parallel(); testSecrets(g.in(t)) })
	t.Run("Rights", func(t *testing.T) { t.Parallel(); testMissingRights(g.in(t)) })
}

// testTLS: programs work with only the TLS ports of servers that all require a client
// certificate.
func testTLS(g *guarded) {
	t := g.t
	w := g.fixture("tls", g.secured(g.ca, g.ca.issue("client", time.Now().Add(time.Hour))))
	must(t, w.scanner("topic", "set", "orders", "shards=2", "exchange=tls", "routing_key=tls",
		"declare.queue=tls.due", "declare.queue_type=classic"))
	must(t, w.scanner("check"))
	w.start(1)
	w.awaitServed(2)
	w.consume("tls.due")
	must(t, w.producer("schedule", "--topic", "orders", "--id", "secure", "--in", "200ms", "--payload", "p"))
	check.Until(w.t, "the message", func() bool { return len(w.delivered("secure")) == 1 })
	for _, line := range []string{"redis: ok", "rabbitmq: ok: connected", "consul: ok"} {
		check.Until(t, "/readyz to say "+line, rarely(func() bool { return strings.Contains(readyz(w.scanners[0]), line) }))
	}
	check.Until(t, "registered in Consul", rarely(func() bool {
		keys, _, err := g.master().KV().Keys("tls/status/", "", nil)
		return err == nil && len(keys) == 1
	}))
	w.stop()
}

func readyz(s *fleet.Scanner) string { return get(s, "/readyz") }

// get returns the body of a response, whatever its status.
func get(s *fleet.Scanner, path string) string {
	var text bytes.Buffer
	_ = s.Get(context.Background(), path, &text)
	return text.String()
}

// refusal is a set of settings that every server rejects, and the expected words of the
// error for each server.
type refusal struct {
	settings map[string]fleet.Topic
	// words are common to all servers; SECTION stands for redis, rabbitmq or consul.
	words []string
	// own are words for a single server.
	own map[string][]string
}

// testRefusals: if a server rejects a program, one line says what is wrong and which key
// to check. The commands, the log and /readyz all have it.
func testRefusals(g *guarded) {
	good := g.ca.issue("good", time.Now().Add(time.Hour))
	past := time.Now().Add(-time.Hour)
	wrong := g.secured(g.ca, good)
	wrong["redis"]["password"] = "s3cret"
	wrong["rabbitmq"]["urls"] = []string{"amqps://guest:s3cret@" + g.rabbitmqTLS + "/"}
	wrong["consul"]["token"] = "53c7e700-0000-4000-8000-000000000000"
	expired := g.secured(g.ca, good)
	front := g.front(g.ca.issue("front", past))
	expired["redis"]["addrs"] = []string{front}
	expired["rabbitmq"]["urls"] = []string{"amqps://guest:guest@" + front + "/"}
	expired["consul"]["addr"] = front
	tests := map[string]refusal{
		"TLS at ports without": {
			settings: g.withAddrs(g.secured(g.ca, good), g.redis.Addr(), strings.Replace(g.amqp("guest", "guest"), "amqp:",
				"amqps:", 1), g.consul.Addr()),
			words: []string{"the server does not speak TLS there: check the port, or SECTION.tls.enabled"},
		},
		"no TLS at ports with": {
			settings: g.withAddrs(map[string]fleet.Topic{
				"redis": {"password": adminPassword}, "rabbitmq": {}, "consul": {"token": masterToken},
			}, g.redisTLS, "amqp://guest:guest@"+g.rabbitmqTLS+"/", g.consulTLS),
			own: map[string][]string{
				"redis": {"redis.tls.enabled"}, "rabbitmq": {"amqps://"}, "consul": {"set consul.tls.enabled"},
			},
		},
		"another authority": {
			settings: g.secured(newAuthority(g.t, "another"), good),
			words:    []string{"signed by unknown authority", "check SECTION.tls.ca_file"},
		},
		"server's certificate expired": {
			settings: expired,
			words:    []string{"certificate has expired", "renew the server's certificate"},
		},
		"client's certificate expired": {
			settings: g.secured(g.ca, g.ca.issue("late", past)),
			words:    []string{"this client's certificate has expired", "check SECTION.tls.cert_file"},
		},
		"no client's certificate": {
			settings: g.secured(g.ca, pair{}),
			words:    []string{"certificate", "check SECTION.tls.cert_file and key_file"},
		},
		"another authority's client": {
			settings: g.secured(g.ca, newAuthority(g.t, "stranger").issue("stranger", time.Now().Add(time.Hour))),
			words:    []string{"check SECTION.tls.cert_file"},
		},
		"password": {
			settings: wrong,
			own: map[string][]string{
				"redis": {"WRONGPASS", "redis.password"}, "rabbitmq": {"Login was refused",
					"check user and password in rabbitmq.urls"},
				"consul": {"ACL not found", "check consul.token"},
			},
		},
	}
	for name, r := range tests {
		g.t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.check(g.in(t))
		})
	}
}

// withAddrs returns a copy of the settings with other addresses of the servers.
func (g *guarded) withAddrs(settings map[string]fleet.Topic, redis, rabbitmq, consul string) map[string]fleet.Topic {
	settings["redis"]["addrs"] = []string{redis}
	settings["rabbitmq"]["urls"] = []string{rabbitmq}
	settings["consul"]["addr"] = consul
	return settings
}

// front is a TLS server that shows a certificate and has nothing behind it.
func (g *guarded) front(shown pair) string {
	g.t.Helper()
	cert, err := tls.LoadX509KeyPair(shown.cert, shown.key)
	if err != nil {
		g.t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert},
		MinVersion: tls.VersionTLS12})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			}
		}
	}()
	return l.Addr().String()
}

func (r refusal) of(section string) []string {
	var words []string
	for _, word := range r.words {
		words = append(words, strings.ReplaceAll(word, "SECTION", section))
	}
	return append(words, r.own[section]...)
}

func (r refusal) check(g *guarded) {
	t := g.t
	w := g.fixture("refused", r.settings)
	status, scheduled, checked := func() fleet.Output { return w.scanner("status") },
		func() fleet.Output { return w.producer(schedule()...) }, func() fleet.Output { return w.scanner("check") }
	checkError(t, "scanner status", reasoned(status), 1, r.of("redis")...)
	checkError(t, "producer schedule", reasoned(scheduled), 1, r.of("redis")...)
	checkError(t, "scanner check", reasoned(checked), 1, r.of("consul")...)
	s := w.startUnready()
	for _, section := range []string{"redis", "rabbitmq", "consul"} {
		w.awaitTold(s, section, r.of(section)...)
	}
	w.stop()
}

// reasoned runs a command again, up to ten times, while "connection reset" hides the
// server's reason for a refusal.
func reasoned(run func() fleet.Output) fleet.Output {
	out := run()
	for range 9 {
		if !strings.Contains(out.Stderr, "connection reset by peer") {
			break
		}
		out = run()
	}
	return out
}

// startUnready adds a scanner that can't become ready.
func (w *fixture) startUnready() *fleet.Scanner {
	w.t.Helper()
	return w.startAs(fleet.ScannerConfig{Unready: true})
}

// startAs adds a scanner. The fixture sets Binary, Config and Dir of c.
func (w *fixture) startAs(c fleet.ScannerConfig) *fleet.Scanner {
	w.t.Helper()
	c.Binary, c.Config, c.Dir = programs.Scanner, w.config, w.dir
	s, err := fleet.StartScanner(check.Context(w.t), c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.scanners = append(w.scanners, s)
	return s
}

// awaitTold waits until one line of a check in /readyz and one line of the log contain
// all the words. Every line of the log must be a record.
func (w *fixture) awaitTold(s *fleet.Scanner, what string, words ...string) {
	w.t.Helper()
	var ready, log string
	told := false
	defer func() {
		if !told {
			w.t.Logf("%s: no line of /readyz, or none of the log, holds %q:\n%s\n%s", what, words, ready, log)
		}
	}()
	check.Until(w.t, "/readyz and the log to report "+what, rarely(func() bool {
		ready, log = readyz(s), w.log(s)
		told = holdsLine(ready, what+": down", words) && holdsLine(log, "time=", words)
		return told
	}))
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") {
			w.t.Errorf("a line of the log is not a record: %s", line)
		}
	}
}

func (w *fixture) log(s *fleet.Scanner) string {
	w.t.Helper()
	text, err := os.ReadFile(s.Log())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func holdsLine(text, prefix string, words []string) bool {
	for line := range strings.Lines(text) {
		missing := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
		if strings.HasPrefix(line, prefix) && !missing {
			return true
		}
	}
	return false
}

// testMissingRights: if one right is missing, the error names it and says how to grant
// it.
func testMissingRights(g *guarded) {
	least := readRights(g.t)
	g.ctl("add_user", "reader", "reader")
	g.ctl("set_permissions", "-p", "/", "reader", "^$", "^$", "^$")
	g.t.Run("Redis", func(t *testing.T) { t.Parallel(); testMissingCommand(g.in(t), least) })
	g.t.Run("RabbitMQ", func(t *testing.T) { t.Parallel(); testMissingWrite(g.in(t)) })
	g.t.Run("Consul", func(t *testing.T) { t.Parallel(); testMissingRead(g.in(t), least) })
	g.t.Run("History", func(t *testing.T) { t.Parallel(); testMissingHistory(g.in(t), least) })
	g.t.Run("Registering", func(t *testing.T) { t.Parallel(); testMissingService(g.in(t), least) })
}

// withoutRule returns a policy without its rule for what begins with a text. Its keys have
// another prefix.
func withoutRule(t *testing.T, policy, rule, prefix string) string {
	t.Helper()
	left := regexp.MustCompile(`(?m)^`+rule+`.*$`).ReplaceAllString(policy, "")
	if left == policy {
		t.Fatalf("the policy has no rule %s", rule)
	}
	return strings.ReplaceAll(left, `"duefleet/`, `"`+prefix+`/`)
}

// limited returns a fixture whose token of Consul has a policy, and an administrator's
// fixture on the same servers.
func (g *guarded) limited(prefix, policy string) (w, admin *fixture) {
	g.t.Helper()
	w = g.fixture(prefix, map[string]fleet.Topic{
		"redis": {"password": adminPassword}, "consul": {"token": g.token(prefix, policy)},
	})
	return w, w.as("master.yaml", map[string]fleet.Topic{
		"redis": {"password": adminPassword}, "consul": {"token": masterToken},
	})
}

// testMissingCommand removes one command each: the claiming script uses GET, the counting
// one ZCARD, and the scheduling one ZADD.
func testMissingCommand(g *guarded, least rights) {
	t := g.t
	master := fleet.Topic{"token": masterToken}
	w := g.fixture("duefleet", map[string]fleet.Topic{"consul": master})
	lacks := func(line []string, right string) *fixture {
		line = slices.Clone(line)
		line[2] += "-without" + right
		user := grant(t, w.redis, line, "secret", right)
		return w.as(user+".yaml", map[string]fleet.Topic{
			"redis": {"username": user, "password": "secret"}, "consul": master,
			"rabbitmq": {"urls": []string{w.settings.RabbitMQURL}},
		})
	}
	must(t, lacks(least.redisScanner, "+get").scanner("topic", "set", "orders", "shards=1", "declare.queue=orders"))
	claiming := lacks(least.redisScanner, "+get")
	w.config = claiming.config
	w.awaitTold(w.startUnready(), "redis", "'get'", "ACL SETUSER")
	w.config = lacks(least.redisScanner, "+ssubscribe").config
	w.awaitTold(w.startAs(fleet.ScannerConfig{Name: "deaf", Unready: true}), "redis", "'ssubscribe'", "ACL SETUSER")
	checkError(t, "scanner status", lacks(least.redisScanner, "+zcard").scanner("status"), 1, "'zcard'", "ACL SETUSER")
	checkError(t, "producer schedule", lacks(least.redisProducer, "+zadd").producer(schedule()...), 1, "'zadd'",
		"ACL SETUSER")
	w.stop()
}

// testMissingWrite: if a topic's exchange refuses a scanner, log and status say so, and
// the tasks are kept.
func testMissingWrite(g *guarded) {
	t := g.t
	w := g.fixture("unwritten", map[string]fleet.Topic{
		"redis": {"password": adminPassword}, "consul": {"token": masterToken},
		"rabbitmq": {"urls": []string{g.amqp("reader", "reader")}},
	})
	w.exchange("fanout", "unwritten", "unwritten", "")
	must(t, w.scanner("topic", "set", "orders", "shards=1", "exchange=unwritten"))
	w.start(1)
	w.awaitServed(1)
	must(t, w.producer("schedule", "--topic", "orders", "--id", "a", "--in", "0s"))
	words := []string{"403", "exchange 'unwritten'", "rabbitmqctl set_permissions"}
	check.Until(t, "the log and the status to tell", rarely(func() bool {
		return holdsLine(w.log(w.scanners[0]), "time=", words) &&
			holdsLine(strings.Join(w.status().Topic("orders").Notes, "\n"), "", words)
	}))
	blocked := `duefleet_topic_blocked{reason="access_refused",topic="orders"} 1`
	check.Until(t, "the metrics to tell", rarely(func() bool {
		return strings.Contains(get(w.scanners[0], "/metrics"),
			blocked)
	}))
	w.holds("the task is kept, and the topic blocked", 3*time.Second, func() bool {
		topic := w.status().Topic("orders")
		return topic.Pending == 1 && topic.Parked == 0 && strings.Contains(get(w.scanners[0], "/metrics"), blocked)
	})
	said := map[string]int{}
	for line := range strings.Lines(w.log(w.scanners[0])) {
		if _, message, ok := strings.Cut(line, "level=WARN msg="); ok {
			said[message[:min(len(message), 30)]]++
		}
	}
	for message, n := range said {
		if n > 1 {
			t.Errorf("one outage was logged %d times (%s):\n%s", n, message, w.log(w.scanners[0]))
		}
	}
	w.stop()
}

// testMissingRead: if a token may not read the topics, the error says so, and no topic
// looks deleted.
func testMissingRead(g *guarded, least rights) {
	t := g.t
	w, admin := g.limited("unread", withoutRule(t, least.consulScanner, `key_prefix "duefleet/topics/"`, "unread"))
	must(t, admin.scanner("topic", "set", "orders", "shards=1"))
	words := []string{"unread/topics/", "Permission denied", "consul.token", "policy"}
	checkError(t, "scanner check", w.scanner("check"), 1, words...)
	w.awaitTold(w.startUnready(), "consul", words...)
	w.stop()
}

// testMissingHistory: a token may write topics but not their history, as in old
// installations. It can set and remove topics, and the error names the missing right.
func testMissingHistory(g *guarded, least rights) {
	t := g.t
	const rule = `key_prefix "duefleet/history/"`
	words := []string{"the change is not in its history", "Permission denied", "consul.token", "policy"}
	fixtures := map[string]*fixture{}
	for name, more := range map[string]string{"unkept": "",
		"read-only": `key_prefix "read-only/history/" { policy = "read" }`} {
		w, _ := g.limited(name, withoutRule(t, least.consulTopic, rule, name)+more)
		fixtures[name] = w
		for _, verb := range [][]string{{"set", "orders", "shards=1", "--no-wait"},
			{"set", "orders", "shards=2", "--no-wait"}, {"rm", "orders", "--yes"}} {
			if out := must(t, w.scanner(append([]string{"topic"}, verb...)...)); !holdsLine(out.Stderr, "topic orders: ",
				words) {
				t.Errorf("%s, topic %s says %s", name, verb[0], out.Stderr)
			}
		}
	}
	checkError(t, "topic history", fixtures["unkept"].scanner("topic", "history", "orders"), 1, "unkept/history/orders",
		"Permission denied", "consul.token", "policy")
	fixtures["unkept"].stop()
}

// testMissingService: a scanner whose token may not register it works. It warns of that
// once, however often it tries, and /readyz shows it.
func testMissingService(g *guarded, least rights) {
	t := g.t
	w, admin := g.limited("unlisted", withoutRule(t, least.consulScanner, "service ", "unlisted"))
	must(t, admin.scanner("topic", "set", "orders", "shards=1", "declare.queue=unlisted"))
	w.start(1)
	s := w.scanners[0]
	words := []string{"service:write", "Permission denied", "consul.token", "policy"}
	check.Until(t, "/readyz to tell", rarely(func() bool { return holdsLine(readyz(s), "consul: ok", words) }))
	check.Until(t, "a second try", rarely(func() bool {
		return strings.Contains(get(s, "/metrics"), `duefleet_errors_total{operation="register"} 2`)
	}))
	w.stop()
	var warned []string
	for line := range strings.Lines(w.log(s)) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			warned = append(warned, line)
		}
	}
	if len(warned) != 1 || !holdsLine(warned[0], "time=", append(words, "level=WARN")) {
		t.Errorf("the log warns of %q, want one line with %q", warned, words)
	}
}

// TestAdminListensOnLoopback: by default a scanner listens only on this machine, at the
// documented port.
func TestAdminListensOnLoopback(t *testing.T) {
	t.Parallel()
	config := file(t, "redis: {addrs: [127.0.0.1:1]}\n")
	// Another scanner on this machine may use the port for a while.
	var s *fleet.Scanner
	for s == nil || ended(s) {
		var err error
		s, err = fleet.StartScanner(t.Context(), fleet.ScannerConfig{
			Binary: programs.Scanner, Config: config, Dir: t.TempDir(), Admin: "127.0.0.1:9320", Default: true, Unready: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Kill() })
		started := func() bool {
			log, err := os.ReadFile(s.Log())
			return err == nil && strings.Contains(string(log), "scanner started")
		}
		check.Until(t, "the scanner to listen, or to end", func() bool { return ended(s) || started() })
	}
	check.Until(t, "127.0.0.1:9320 to answer", rarely(func() bool { return get(s, "/livez") == "ok\n" }))
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(addrs, &net.IPNet{IP: net.IPv4(127, 0, 0, 2)}) {
		ip := a.(*net.IPNet).IP
		if ip.Equal(net.IPv4(127, 0, 0, 1)) {
			continue
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), "9320"), time.Second)
		if err == nil {
			_ = conn.Close()
			t.Errorf("it also listens on %s", ip)
		}
	}
	if ended(s) {
		t.Error("the scanner ended")
	}
}

func ended(s *fleet.Scanner) bool {
	select {
	case <-s.Gone():
		return true
	default:
		return false
	}
}
