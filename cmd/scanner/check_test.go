package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/cli"
)

// TestCheckKnowsWhatRunRefuses: if check passes, run starts. Otherwise both fail with the
// same message, which contains no secret.
func TestCheckKnowsWhatRunRefuses(t *testing.T) {
	t.Parallel()
	const secret = "S3CRET"
	stopped, stop := context.WithCancel(t.Context())
	stop() // so that a member that starts ends at once
	for settings, want := range map[string]string{
		"rabbitmq: {urls: ['amqp://h:1/']}": "",
		"rabbitmq: {urls: ['amqps://u:S3CRET@h/v?heartbeat=5&auth_mechanism=plain&connection_timeout=1000']}": "",
		"rabbitmq: {urls: ['amqp://h/%2f']}": "", "redis: {addrs: ['[::1]:6379', h:1]}": "",

		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?heartbeat=5s']}": "rabbitmq.urls: number 1 must have a heartbeat",
		"rabbitmq: {urls: ['amqp://h/', 'amqp://u:S3CRET@h/?heartbeat=']}": "rabbitmq.urls: number 2 must have " +
			"a heartbeat",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?heartbeat=-1']}": "rabbitmq.urls: number 1 must have a heartbeat",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?auth_mechanism=magic']}": "rabbitmq.urls: number 1 must have " +
			"an auth_mechanism",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?auth_mechanism=']}": "rabbitmq.urls: number 1 must have " +
			"an auth_mechanism",
		"rabbitmq: {urls: ['amqps://u:S3CRET@h/?cacertfile=/a']}": "rabbitmq.urls: number 1 must not name TLS files",
		"rabbitmq: {urls: ['amqps://u:S3CRET@h/?certfile=/a&keyfile=/b']}": "rabbitmq.urls: number 1 must not " +
			"name TLS files",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?connection_timeout=1s']}": "rabbitmq.urls: number 1 must be amqp://",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/?channel_max=x']}":         "rabbitmq.urls: number 1 must be amqp://",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/%zz']}":                    "rabbitmq.urls: number 1 must be amqp://",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h:1:2/']}":                   "rabbitmq.urls: number 1 must be amqp://",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h:0/']}":                     "rabbitmq.urls: number 1 must have a port",
		"rabbitmq: {urls: ['AMQP:u:S3CRET@h']}":                          "rabbitmq.urls: number 1 must begin with amqp://",
		"rabbitmq: {urls: ['redis://u:S3CRET@h']}":                       "rabbitmq.urls: number 1 must begin with amqp://",
		"rabbitmq: {urls: ['amqp://u:S3CRET@h/'], tls: {enabled: true}}": "rabbitmq.urls: number 1 must begin " +
			"with amqps://",
		"consul: {addr: 'http://https://h:8500'}":               "consul.addr: must be host:port",
		"consul: {addr: 'http://u:S3CRET@h:8500'}":              "consul.addr: must be host:port",
		"consul: {addr: 'h:8500/%zz'}":                          "consul.addr: must be host:port",
		"consul: {addr: 'http://h:8500', tls: {enabled: true}}": "consul.addr: must begin with https://",
		"consul: {addr: 'unix:///run/consul.sock'}":             "consul.addr: must be host:port",
		"redis: {addrs: ['redis://:S3CRET@h:6379']}": "redis.addrs: must be host:port, as " +
			"in 127.0.0.1:6379; number 1 is a URL",
		"redis: {addrs: [h:1, ':S3CRET@h:6379']}": "redis.addrs: must be host:port, as " +
			"in 127.0.0.1:6379; number 2 is a URL",
		"redis: {addrs: ['rediss://h:6379/0']}": "redis.addrs: must be host:port, as " +
			"in 127.0.0.1:6379; number 1 is a URL",
		"redis: {addrs: [h:1], tls: {enabled: true, ca_file: /nowhere}}":           "redis.tls.ca_file: ",
		"redis: {addrs: [h:1], tls: {enabled: true, cert_file: /n, key_file: /n}}": "redis.tls.cert_file: ",
		"rabbitmq: {urls: ['amqps://h/'], tls: {enabled: true, ca_file: /dev/null}}": "rabbitmq.tls.ca_file: must be a " +
			"regular file",
	} {
		file := writeFile(t, "config.yaml", "admin: {listen: '127.0.0.1:0'}\n"+settings+"\n")
		var checked, told, ran bytes.Buffer
		code := run(stopped, []string{"check", "--config", file}, &checked, &told)
		same := run(stopped, []string{"run", "--config", file}, &ran, &ran)
		if bad := want != ""; (code == 1) != bad || code != same {
			t.Errorf("%s: check exits with %d, run with %d:\n%s%s%s", settings, code, same, checked.String(), told.String(),
				ran.String())
		}
		if !strings.Contains(checked.String(), want) || !strings.Contains(ran.String(), want) {
			t.Errorf("%s: want %s of both:\n%s%s", settings, want, checked.String(), ran.String())
		}
		if strings.Contains(checked.String()+told.String()+ran.String(), secret) {
			t.Errorf("%s: a secret is shown:\n%s%s%s", settings, checked.String(), told.String(), ran.String())
		}
	}
}

// TestCheckWantsTopicsFromSomewhere: without a file and without Consul run has nothing to
// serve, and check says so as well.
func TestCheckWantsTopicsFromSomewhere(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"check", "run"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{verb}, &out, &out); code != 1 ||
			!strings.Contains(out.String(), "no topics to serve") {
			t.Errorf("%s: exit code %d: %s", verb, code, out.String())
		}
	}
}

// TestCheckTellsThatThereAreNoTopics: run starts with an empty list and waits for the file
// to change; check says that nothing would be delivered.
func TestCheckTellsThatThereAreNoTopics(t *testing.T) {
	t.Parallel()
	for topics, want := range map[string]string{"{}": "ok, but there are no topics", "{orders: {}}": "ok: 1 topics\n"} {
		file := writeFile(t, "config.yaml", "topics: "+topics+"\n")
		var out bytes.Buffer
		if code := run(t.Context(), []string{"check", "--config", file}, &out, &out); code != 0 ||
			!strings.HasPrefix(out.String(), want) {
			t.Errorf("topics: %s: exit code %d: %s", topics, code, out.String())
		}
	}
	o := newConsulOperator(t)
	o.wants(cli.Done, "ok, but there are no topics in consul under", "check")
	o.puts(map[string]string{"orders": "{}"})
	o.wants(cli.Done, "ok: 1 topics in consul\n", "check")
}
