package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestEmptyFileAndEnvironmentGiveTheDefaults(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"", "# nothing\n", "---\n", "{}\n", "\ufeff", "redis:\ntopics:\n"} {
		got, err := decode("c.yaml", []byte(doc), []string{"HOME=/root", "DUEFLEET=x"})
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		if want := Defaults(); !reflect.DeepEqual(*got, want) {
			t.Errorf("%q: got %+v, want %+v", doc, *got, want)
		}
	}
}

// The parser takes a colon inside braces for the end of a key, space or not.
func TestAddressesInFlowStyle(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string][]string{
		"redis: {addrs: [redis:6379]}":                        {"redis:6379"},
		"redis: {addrs: [ 10.0.0.1:1 , b:2 ], prefix: x}":     {"10.0.0.1:1", "b:2"},
		"redis: {addrs: ['a:1', \"b:2\", c:3]}":               {"a:1", "b:2", "c:3"},
		"{\n\t\"redis\": {\"addrs\": [\"a:1\"], \"db\":0}\n}": {"a:1"},
		"redis:\n  addrs: [a:1]":                              {"a:1"},
		"redis:\r\n  addrs:\r\n  - a:1\r\n":                   {"a:1"},
	} {
		got, err := decode("c", []byte(doc), nil)
		if err != nil || !slices.Equal(got.Redis.Addrs, want) {
			t.Errorf("%s: got %v, %v", doc, got, err)
		}
	}
	urls := "amqp://u:p@h:1/v?heartbeat=5,amqps://h2"
	got, err := decode("c", []byte("rabbitmq: {urls: ["+urls+"]}"), nil)
	if err != nil || strings.Join(got.RabbitMQ.URLs, ",") != urls {
		t.Errorf("got %v, %v", got, err)
	}
	for _, doc := range []string{"[a: 1]", "[{a:1}]", "['a':1]", "[a:{b: 1}]"} {
		_, err := decode("c", []byte("redis: {addrs: "+doc+"}"), nil)
		wantLines(t, err, "c:1: redis.addrs: number 1 must be a text, in quotes if it looks like something else; got keys "+
			"with values")
	}
}

func TestLoadWithoutAFile(t *testing.T) {
	t.Parallel()
	got, err := Load("", []string{"DUEFLEET_SHUTDOWN_TIMEOUT=3s"})
	if err != nil || got.ShutdownTimeout != 3*time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLoadOfAMissingFile(t *testing.T) {
	t.Parallel()
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// errorsOf returns the error's lines.
func errorsOf(t *testing.T, err error) []string {
	t.Helper()
	var m Errors
	if err != nil && !errors.As(err, &m) {
		t.Fatalf("not Errors: %v", err)
	}
	lines := make([]string, len(m))
	for i := range m {
		lines[i] = m[i].Error()
	}
	return lines
}

func wantLines(t *testing.T, err error, want ...string) {
	t.Helper()
	got := errorsOf(t, err)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryErrorIsReported(t *testing.T) {
	t.Parallel()
	doc := `redis:
  addrs: 127.0.0.1:6379
  db: "3"
  paswords: s3cr3t
  password: 12345
rabbitmq:
  urls: [amqp://me:s3cr3t@host:99999/, "http://me:s3cr3t@host/"]
log: {level: loud, format: text}
shutdown_timeout: 15
topics:
  orders:
    tick: 5ms
    shards: 4.5
    backof: {min: 1s}
    declare:
      type: header
  bad name: {}
  late:
    shards: 8
    shards: 9
    lease: 2 days
    window: 0
    backoff: {min: 10m}
  text: yes
`
	_, err := decode("config.yaml", []byte(doc), []string{"DUEFLEET_REDIS_DBS=1", "DUEFLEET_LOG_FORMAT=xml",
		"DUEFLEET_TEST_X=1"})
	wantLines(t, err,
		`config.yaml:2: redis.addrs: must be a list, as in [a, b]; got a text`,
		`config.yaml:3: redis.db: must be a whole number; got a text`,
		`config.yaml:4: redis.paswords: unknown key; did you mean password?`,
		`config.yaml:5: redis.password: must be a text, in quotes if it looks like something else; got a number`,
		`config.yaml:7: rabbitmq.urls: number 1 must have a port of 1 to 65535; got 99999`,
		`config.yaml:8: log.level: must be one of debug, info, warn, error; got "loud"`,
		`config.yaml:9: shutdown_timeout: want a duration with a unit, as in 30s, 30m or 2d; got "15"`,
		`config.yaml:12: topics.orders.tick: must be 10ms to 1m; got 5ms`,
		`config.yaml:13: topics.orders.shards: must be a whole number; got "4.5"`,
		`config.yaml:14: topics.orders.backof: unknown key; did you mean backoff?`,
		`config.yaml:15: topics.orders.declare.queue: is required where declare is given`,
		`config.yaml:16: topics.orders.declare.type: must be one of direct, topic, fanout, headers; got "header"`,
		`config.yaml:17: topics.bad name: topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 8 bytes with ' ' at byte 3`,
		`config.yaml:20: topics.late.shards: given twice; first at line 19`,
		`config.yaml:21: topics.late.lease: want a duration such as 30m, 1h30m, 500ms or 2d, of at most 100 years; got "2 days"`,
		`config.yaml:22: topics.late.window: must be 1 to 100000; got 0`,
		`config.yaml:23: topics.late.backoff.min: must be at most backoff.max, which is 5m; got 10m`,
		`config.yaml:24: topics.text: must be keys with values; got a text`,
		`environment: DUEFLEET_REDIS_DBS: unknown variable; did you mean DUEFLEET_REDIS_DB?`,
		`environment: DUEFLEET_LOG_FORMAT: must be one of text, json; got "xml"`,
	)
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"redis: [1\nlog: {}\n":                   `c:2: not valid YAML: ',' or ']' must be specified`,
		"redis:\n  password: \"s3cr3t\n":         `c:2: not valid YAML: could not find end character of double-quoted text`,
		"log: {}\n---\nlog: {}\n":                `c:3: must be one document`,
		"- a\n":                                  `c:1: must be keys with values; got a list`,
		"hello":                                  `c:1: must be keys with values; got a text`,
		"log: {}\n# \xff\n":                      `c:2: must be UTF-8`,
		"log:\n\tlevel: info\n":                  `c:2: not valid YAML: found character '\t' that cannot start any token`,
		"redis: {\"db.\": 1}":                    `c:1: redis.db.: unknown key; did you mean db?`,
		"? log\n: {}\n":                          `c:1: a key must be a plain word; got something else`,
		"log: &a {level: info}\n":                `c:1: log: must be keys with values; got an anchor or alias, which are not supported`,
		"log:\n  level: *a\n":                    `c:2: log.level: must be a text, in quotes if it looks like something else; got an anchor or alias, which are not supported`,
		"log:\n  <<: {level: info}\n":            `c:2: log: a key must be a plain word; got a merge key, which is not supported`,
		"log:\n  level: !!str info\n":            `c:2: log.level: must be a text, in quotes if it looks like something else; got a tag, which is not supported`,
		"log:\n  level:\n":                       `c:2: log.level: must be a text, in quotes if it looks like something else; got no value`,
		"log: {level: info, level: info}\n":      `c:1: log.level: given twice; first at line 1`,
		strings.Repeat("# comment\n", 60_000):    `c: must be at most 524288 bytes; got 600000`,
		"topics: {a: {shards: 010}}":             `c:1: topics.a.shards: must be a whole number; got "010"`,
		"topics: {a: {shards: 0x10}}":            `c:1: topics.a.shards: must be a whole number; got "0x10"`,
		"topics: {a: {paused: yes}}":             `c:1: topics.a.paused: must be true or false; got a text`,
		"topics: {a: {rate: 1e3}}":               `c:1: topics.a.rate: must be a whole number; got a text`,
		"topics: [a]":                            `c:1: topics: must be keys with values; got a list`,
		"topic: {}":                              `c:1: topic: unknown key; did you mean topics?`,
		"redis: {tls: {ca: x}}":                  `c:1: redis.tls.ca: unknown key`,
		"redis: {addrs: [localhost]}":            `c:1: redis.addrs: must be host:port, as in 127.0.0.1:6379; number 1 has no port`,
		"redis: {addrs: ['redis://:SECRET@a']}":  `c:1: redis.addrs: must be host:port, as in 127.0.0.1:6379; number 1 is a URL: user, password and TLS are settings of their own`,
		"redis: {addrs: [a:1, ':SECRET@a']}":     `c:1: redis.addrs: must be host:port, as in 127.0.0.1:6379; number 2 is a URL: user, password and TLS are settings of their own`,
		"redis: {addrs: []}":                     `c:1: redis.addrs: must be 1 to 64 addresses; got 0`,
		"redis: {addrs: [a:1, 2]}":               `c:1: redis.addrs: number 2 must be a text, in quotes if it looks like something else; got a number`,
		"redis:\n  prefix: a{b}":                 `c:2: redis.prefix: must be 1 to 64 of A-Z a-z 0-9 . _ - : /; got "a{b}"`,
		"redis:\n  addrs: [a:1, b:1]\n  db: 1\n": `c:3: redis.db: must be 0 with several redis.addrs: a cluster has no other database`,
		"consul: {prefix: /duefleet}":            `c:1: consul.prefix: must be names with one / between them; got "/duefleet"`,
		"consul: {addr: consul}":                 `c:1: consul.addr: must be host:port or an http or https URL with a port, as in 127.0.0.1:8500`,
		"admin: {listen: 9320}":                  `c:1: admin.listen: must be a text, in quotes if it looks like something else; got a number`,
		"admin: {listen: 'x:70000'}":             `c:1: admin.listen: must be host:port, as in 127.0.0.1:9320; got "x:70000"`,
	} {
		_, err := decode("c", []byte(doc), nil)
		wantLines(t, err, want)
	}
}

// TestWhatIsNoMappingIsNoDocument: a file or a topic's document must be keys with values,
// whatever the parser returns for it.
func TestWhatIsNoMappingIsNoDocument(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"!!!!!!":                        "1: must be keys with values; got a tag, which is not supported",
		"# c\n--- !x\n":                 "2: must be keys with values; got a tag, which is not supported",
		"!!map":                         "1: must be keys with values; got a tag, which is not supported",
		"!!map {}":                      "1: must be keys with values; got a tag, which is not supported",
		"!x {shards: 4}":                "1: must be keys with values; got a tag, which is not supported",
		"[]":                            "1: must be keys with values; got a list",
		"- shards: 4":                   "1: must be keys with values; got a list",
		"~":                             "1: must be keys with values; got no value",
		"\n\nnull\n":                    "3: must be keys with values; got no value",
		`""`:                            "1: must be keys with values; got a text",
		"''":                            "1: must be keys with values; got a text",
		"|\n shards: 4":                 "1: must be keys with values; got a text",
		"shards":                        "1: must be keys with values; got a text",
		"5":                             "1: must be keys with values; got a number",
		".nan":                          "1: must be keys with values; got a number",
		"true":                          "1: must be keys with values; got true or false",
		"*a":                            "1: must be keys with values; got an anchor or alias, which are not supported",
		"{}\n---\n{}":                   "3: must be one document",
		"{}\n---\n":                     "2: must be one document",
		"{}\n---\n!!!!!!":               "2: must be one document",
		"---\n---\n{}":                  "3: must be keys with values; got more than one document",
		"%YAML 1.2\n---\n{}\n---\n{}\n": "5: must be one document",
	} {
		_, err := decode("c", []byte(doc), nil)
		wantLines(t, err, "c:"+want)
		_, err = ParseTopic("orders", []byte(doc))
		wantLines(t, err, "orders:"+want)
	}
}

// TestAnEmptyTopicIsRefused: a write to Consul that lost its value must not set every key to
// its default.
func TestAnEmptyTopicIsRefused(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"", "\n", "# shards: 8\n", "---\n", "\ufeff", "%YAML 1.2\n---\n", "---\n...\n",
		"--- # nothing\n"} {
		_, err := ParseTopic("orders", []byte(doc))
		wantLines(t, err, "orders:1: is empty; must be keys with values, or {} for a topic with every default")
		d := ReadDraft("orders", []byte(doc))
		d.Assign("shards=8")
		if _, err := d.Topic(); err != nil || string(d.Render()) != "shards: 8\n" {
			t.Errorf("%q can't be mended: %q, %v", doc, d.Render(), err)
		}
	}
	if topic, err := ParseTopic("orders", []byte("{}")); err != nil || topic.Shards != 4 {
		t.Errorf("{}: got %+v, %v", topic, err)
	}
}

func TestBoundaries(t *testing.T) {
	t.Parallel()
	for key, values := range map[string][]string{ // accepted, then refused
		"shards":         {"1", "4096", "!0", "!4097", "!-1"},
		"tick":           {"10ms", "1m", "0.0001d", "!9ms", "!61s", "!0", "!-1s", "!1d"},
		"workers":        {"0", "1024", "!1025", "!-1"},
		"batch":          {"1", "1000", "!0", "!1001"},
		"window":         {"1", "100000", "!0", "!100001"},
		"lease":          {"1s", "1h", "!999ms", "!61m"},
		"max_attempts":   {"1", "1000", "!0", "!1001"},
		"history":        {"0s", "90m", "168h", "!-1s", "!169h"},
		"backoff.min":    {"1ms", "5m", "!999us", "!6m"},
		"backoff.max":    {"1s", "24h", "!25h", "!999ms"},
		"rate":           {"0", "1000000", "!1000001", "!-1"},
		"paused":         {"true", "false", "!1", "!no"},
		"exchange":       {strings.Repeat("x", 255), "!" + strings.Repeat("x", 256), "!\xff"},
		"routing_key":    {strings.Repeat("x", 255), "!" + strings.Repeat("x", 256)},
		"declare.queue":  {"q", strings.Repeat("x", 255), "!amq.q", "!" + strings.Repeat("x", 256)},
		"declare.colour": {"!red"},
		"declare":        {"!direct"},
		"intake.exchange": {"x", strings.Repeat("x", 127), "!amq.x", "!" + strings.Repeat("x", 128), "!orders",
			"!duefleet.orders.intake.refused"},
		"intake.queue":      {"x", strings.Repeat("x", 127), "!amq.x", "!" + strings.Repeat("x", 128)},
		"intake.type":       {"topic", "fanout", "headers", "!direct", "!x-delayed-message"},
		"intake.headers":    {"true", "false", "!full"},
		"intake.priorities": {"true", "false", "!refuse"},
		"intake.key": {"message_id", "none", "header:order-id", "!header:", "!header:x-duefleet-in", "!header:X-Delay",
			"!header:x_delay", "!header:X_Duefleet_id", "!id", "!header:" + strings.Repeat("x", 129)},
	} {
		for _, v := range values {
			text, refused := strings.CutPrefix(v, "!")
			d := ReadDraft("orders", nil)
			d.Assign(key + "=" + text)
			if _, err := d.Topic(); (err != nil) != refused {
				t.Errorf("%s=%.20s: got %v", key, text, err)
			}
		}
	}
}

func TestEnvironmentWins(t *testing.T) {
	t.Parallel()
	doc := `redis: {addrs: [a:1], db: 5}
consul: {addr: "c:8500"}
admin: {listen: ":1"}
`
	got, err := decode("c", []byte(doc), []string{
		"DUEFLEET_REDIS_ADDRS=b:1, c:2,",
		"DUEFLEET_REDIS_MASTER_NAME=m",
		"DUEFLEET_REDIS_TLS_SERVER_NAME=s",
		"DUEFLEET_REDIS_TLS_ENABLED=true",
		"DUEFLEET_RABBITMQ_URLS=amqp://h1/,amqps://h2/v",
		"DUEFLEET_CONSUL_ADDR=",
		"DUEFLEET_SHUTDOWN_TIMEOUT=1m30s",
	})
	check.OK(t, err)
	want := Defaults()
	want.Redis = Redis{
		Addrs: []string{"b:1", "c:2"}, MasterName: "m", DB: 5, Prefix: "duefleet",
		TLS: TLS{Enabled: true, ServerName: "s"},
	}
	want.RabbitMQ.URLs = []string{"amqp://h1/", "amqps://h2/v"}
	want.Admin.Listen = ":1"
	want.ShutdownTimeout = 90 * time.Second
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestEveryKeyHasAVariable(t *testing.T) {
	t.Parallel()
	for _, f := range configFields() {
		if f.fileOf != "" {
			continue
		}
		value, _ := f.of(Defaults())
		text := show(value)
		if _, err := decode("c", nil, []string{envName(f.key) + "=" + text}); err != nil {
			t.Errorf("%s=%s: %v", envName(f.key), text, err)
		}
	}
}

func TestInFlightBytesIsAMebibyteAtLeast(t *testing.T) {
	t.Parallel()
	if got := Defaults().InFlightBytes; got != 64<<20 {
		t.Errorf("the default is %d, want 64 MiB", got)
	}
	for n, refused := range map[int]bool{1<<20 - 1: true, 1 << 20: false, 1 << 30: false, 1<<30 + 1: true} {
		got, err := Load("", []string{fmt.Sprintf("DUEFLEET_IN_FLIGHT_BYTES=%d", n)})
		if (err != nil) != refused || err == nil && got.InFlightBytes != n {
			t.Errorf("%d: got %d, %v", n, got.InFlightBytes, err)
		}
	}
}

// A tag can't name a constant of package task.
func TestMaxPayloadIsWhatTasksAllow(t *testing.T) {
	t.Parallel()
	if got := Defaults().MaxPayload; got != task.DefaultMaxPayload {
		t.Errorf("the default is %d, want %d", got, task.DefaultMaxPayload)
	}
	for n, refused := range map[int]bool{task.MaxMaxPayload: false, task.MaxMaxPayload + 1: true} {
		if _, err := Load("", []string{fmt.Sprintf("DUEFLEET_MAX_PAYLOAD=%d", n)}); (err != nil) != refused {
			t.Errorf("%d: got %v", n, err)
		}
	}
}

// A Service named duefleet or duefleet-redis puts these into every pod.
func TestVariablesOfKubernetesAreNoErrors(t *testing.T) {
	t.Parallel()
	_, err := decode("c", nil, []string{
		"DUEFLEET_SERVICE_HOST=10.0.0.1",
		"DUEFLEET_SERVICE_PORT=9320",
		"DUEFLEET_SERVICE_PORT_ADMIN=9320",
		"DUEFLEET_PORT=tcp://10.0.0.1:9320",
		"DUEFLEET_PORT_9320_TCP=tcp://10.0.0.1:9320",
		"DUEFLEET_PORT_9320_TCP_ADDR=10.0.0.1",
		"DUEFLEET_REDIS_PORT=6379",
	})
	wantLines(t, err, "environment: DUEFLEET_REDIS_PORT: unknown variable")
}

// A pod or a shell may have the variable of duefleet-relay for other programs, too.
func TestTheVariableOfTheRelayIsNoError(t *testing.T) {
	t.Parallel()
	_, err := decode("c", nil, []string{"DUEFLEET_OUTBOX_DATABASE=postgres://relay@db/shop", "DUEFLEET_OUTBOX_DATA=x"})
	wantLines(t, err, "environment: DUEFLEET_OUTBOX_DATA: unknown variable")
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	password := writeFile(t, "p@ss, word\n")
	urls := writeFile(t, "\ufeffamqp://a:b@h1/\namqp://a:b@h2/\r\n")
	token := writeFile(t, "t0k3n")
	doc := "redis: {password_file: " + password + ", username: old}\nrabbitmq: {urls_file: " + urls +
		"}\nconsul: {token_file: /nowhere}\n"
	got, err := decode("c", []byte(doc), []string{"DUEFLEET_REDIS_USERNAME_FILE=" + token, "DUEFLEET_CONSUL_TOKEN=t"})
	check.OK(t, err)
	want := Defaults()
	want.Redis.Username, want.Redis.Password = "t0k3n", "p@ss, word"
	want.RabbitMQ.URLs = []string{"amqp://a:b@h1/", "amqp://a:b@h2/"}
	want.Consul.Token = "t"
	want.SecretFiles = []string{token, password, urls}
	want.Redis.UsernameFile, want.Redis.PasswordFile, want.RabbitMQ.URLsFile = token, password, urls
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestSecretFileErrors(t *testing.T) {
	t.Parallel()
	empty, bad := writeFile(t, "\n"), writeFile(t, "amqp://me:s3cr3t@h:0/")
	doc := "redis:\n  password: s3cr3t\n  password_file: " + bad + "\n  username_file: " + empty +
		"\nrabbitmq:\n  urls_file: " + bad + "\nconsul:\n  token_file: /nowhere\n"
	_, err := decode("c", []byte(doc), []string{"DUEFLEET_CONSUL_TOKEN=s3cr3t", "DUEFLEET_CONSUL_TOKEN_FILE=" + bad})
	wantLines(t, err,
		`c:3: redis.password_file: can't be given together with redis.password`,
		`c:4: redis.username_file: must name a file of 1 to 65536 bytes; `+empty+` has 0`,
		`c:6: rabbitmq.urls_file: content of the file: number 1 must have a port of 1 to 65535; got 0`,
		`environment: DUEFLEET_CONSUL_TOKEN_FILE: can't be given together with consul.token`,
	)
	_, err = decode("c", []byte("consul:\n  token_file: /nowhere\n"), nil)
	wantLines(t, err, `c:2: consul.token_file: open /nowhere: no such file or directory`)
}

// TestSecretsAreReadFromRegularFiles: opening a pipe without a writer would block the
// process for ever, and no signal would end it.
func TestSecretsAreReadFromRegularFiles(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	check.OK(t, syscall.Mkfifo(pipe, 0o600))
	file := writeFile(t, "x")
	const is = "must be a regular file; "
	for doc, want := range map[string]string{
		"redis: {password_file: " + pipe + "}": "redis.password_file: " + is +
			pipe + " is a pipe",
		"rabbitmq: {urls_file: " + pipe + "}": "rabbitmq.urls_file: " + is +
			pipe + " is a pipe",
		"consul: {token_file: " + filepath.Dir(pipe) + "}": "consul.token_file: " + is +
			filepath.Dir(pipe) + " is a directory",
		"consul: {token_file: /dev/null}": "consul.token_file: " + is +
			"/dev/null is a device or a socket",
		"redis: {tls: {enabled: true, ca_file: " + pipe + "}}": "redis.tls.ca_file: " + is + pipe +
			" is a pipe",
		"redis: {tls: {enabled: true, cert_file: " + file + ", key_file: " + pipe + "}}": "redis.tls.cert_file: " + is +
			pipe + " is a pipe",
		"consul: {tls: {enabled: true, cert_file: " + pipe + ", key_file: " + file + "}}": "consul.tls.cert_file: " + is +
			pipe + " is a pipe",
	} {
		decoded := make(chan error, 1)
		go func() {
			_, err := decode("c", []byte(doc), nil)
			decoded <- err
		}()
		wantLines(t, check.Receive(t, "an end of reading "+doc, decoded), "c:1: "+want)
	}
}

func TestPasswordsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, u := range []string{
		"amqp://me:" + secret + "@host:port/", "amqp://me:" + secret + "@ho st/", "amqp://me:" + secret + "%zz@host/",
		"me:" + secret + "@host", "amqp://me:" + secret + "@[::1/", "amqp://me:" + secret + "@host/?heartbeat=" + secret,
		"http://me:" + secret + "@host", "amqp://me:" + secret + "\x01@host/",
	} {
		for _, doc := range []string{
			"rabbitmq: {urls: ['" + u + "']}", "rabbitmq: {urls: '" + u + "'}", "rabbitmq: {urls: {'" + u + "': 1}}",
			"rabbitmq:\n  urls: ['" + u + "'\n", "consul: {token: [" + secret + "]}", "redis: {password: [" + secret + "]}",
		} {
			_, err := decode("c", []byte(doc), nil)
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: got %v", doc, err)
			}
		}
		_, err := decode("c", nil, []string{"DUEFLEET_RABBITMQ_URLS=" + u})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", u, err)
		}
	}
	for _, addr := range []string{"redis://:" + secret + "@h:6379", "rediss://me:" + secret + "@h", ":" + secret + "@h:1",
		"me:" + secret + ",x@h:1", "h:1,redis://:" + secret + "@h:1/0"} {
		_, err := decode("c", nil, []string{"DUEFLEET_REDIS_ADDRS=" + addr})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", addr, err)
		}
	}
}

func writeFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
