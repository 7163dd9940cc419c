package config

import (
	"fmt"
	"os"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestWhatNeedsARestartIsListed: every difference outside topics, with both values, but
// without values of secrets.
func TestWhatNeedsARestartIsListed(t *testing.T) {
	t.Parallel()
	read := func(doc string) *Config {
		cfg, err := decode("config.yaml", []byte(doc), nil)
		check.OK(t, err)
		return cfg
	}
	running := read("redis: {prefix: old, password: S3CRET-1, min_replicas: 1}\nrabbitmq: {urls: " +
		"['amqp://u:S3CRET-1@h/']}\n" +
		"admin: {listen: ':9320'}\nconsul: {token: S3CRET-1}\ntopics: {orders: {shards: 4}}")
	if got := needRestart(running, running); len(got) > 0 {
		t.Errorf("of the same settings: got %v, want none", got)
	}
	now := read("redis: {prefix: new, password: S3CRET-2, min_replicas: 1, addrs: [r1:6379, r2:6379]}\nrabbitmq: " +
		"{urls: ['amqp://u:S3CRET-2@h/']}\n" +
		"admin: {listen: ':9321'}\nconsul: {token: S3CRET-2, addr: 'c:8500'}\nshutdown_timeout: 1m\ntopics: {orders: " +
		"{shards: 8}}")
	want := "[{redis.addrs 127.0.0.1:6379 r1:6379,r2:6379} {redis.password (secret) (secret)} {redis.prefix old new} " +
		"{rabbitmq.urls (secret) (secret)} {consul.addr  c:8500} {consul.token (secret) (secret)} {admin.listen :9320 " +
		":9321} {shutdown_timeout 15s 1m}]"
	if got := fmt.Sprint(needRestart(running, now)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFilesOfSecretsNeedNoRestart: the next connection reads their new content. Another
// file's name does need a restart.
func TestFilesOfSecretsNeedNoRestart(t *testing.T) {
	t.Parallel()
	one, other := writeFile(t, "S3CRET-1"), writeFile(t, "S3CRET-3")
	read := func(file string) *Config {
		cfg, err := decode("config.yaml", []byte("redis: {password_file: "+file+"}"), nil)
		check.OK(t, err)
		return cfg
	}
	running := read(one)
	check.OK(t, os.WriteFile(one, []byte("S3CRET-2"), 0o600))
	if got := needRestart(running, read(one)); len(got) > 0 {
		t.Errorf("the file has changed: got %v, want none", got)
	}
	if got := fmt.Sprint(needRestart(running, read(other))); got != "[{redis.password (secret) (secret)}]" {
		t.Errorf("another file: got %v", got)
	}
}
