package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

func TestTLSErrors(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	servertest.WriteCertificate(t, cert, key)
	for doc, want := range map[string]string{
		"redis:\n  tls:\n    ca_file: " + cert: `c:2: redis.tls.enabled: must be given if the section has other keys: true, or false to leave it unused`,
		"redis:\n  tls:\n    enabled: true\n    ca_file: " +
			key: `c:4: redis.tls.ca_file: no PEM certificate in ` + key,
		"redis:\n  tls:\n    enabled: true\n    ca_file: /nowhere": `c:4: redis.tls.ca_file: open /nowhere: no such file or directory`,
		"redis: {tls: {enabled: true, cert_file: " + cert +
			"}}": `c:1: redis.tls.cert_file: and key_file must be given together`,
		"redis: {tls: {enabled: true, cert_file: /nowhere, key_file: " + key +
			"}}": `c:1: redis.tls.cert_file: open /nowhere: no such file or directory`,
		"console: {tls: {key_file: /key}}":                       `c:1: console.tls.cert_file: and key_file must be given together`,
		"rabbitmq:\n  tls: {enabled: true}":                      `c:1: rabbitmq.urls: number 1 must begin with amqps://: rabbitmq.tls is enabled`,
		"consul:\n  addr: http://c:8500\n  tls: {enabled: true}": `c:2: consul.addr: must begin with https://: consul.tls is enabled`,
	} {
		_, err := decode("c", []byte(doc), nil)
		wantLines(t, err, want)
	}
	for _, doc := range []string{
		"redis: {tls: {enabled: false, ca_file: /nowhere}}", "redis: {tls: {ca_file: ''}}",
		"rabbitmq: {urls: [amqps://h/], tls: {enabled: true, ca_file: " + cert + "}}",
		"consul: {addr: 'https://c:8501/x', tls: {enabled: true}}",
	} {
		if _, err := decode("c", []byte(doc), nil); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestABrokenTopicDoesNotHideTheConnections(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	doc := "redis: {prefix: mine}\ntopics:\n  orders: {shards: 99999}\n  bad topic: {}\n"
	check.OK(t, os.WriteFile(path, []byte(doc), 0o600))
	if _, err := Load(path, nil); err == nil {
		t.Fatal("Load took a broken topic")
	}
	cfg, err := LoadConnections(path, nil)
	if err != nil || cfg.Redis.Prefix != "mine" || len(cfg.Topics) != 0 {
		t.Fatalf("got %+v, %v", cfg, err)
	}
	check.OK(t, os.WriteFile(path, []byte("redis: {prefixx: mine}\n"+doc), 0o600))
	if _, err := LoadConnections(path, nil); err == nil || !strings.Contains(err.Error(), "prefixx") {
		t.Fatalf("an error in the connections: %v", err)
	}
}
