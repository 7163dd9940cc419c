package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

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
