package fleet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// Topic is one topic's document, key for key as in the configuration.
type Topic map[string]any

// With is a copy of the document with more or other keys.
func (t Topic) With(changes Topic) Topic {
	c := Topic{}
	maps.Copy(c, t)
	maps.Copy(c, changes)
	return c
}

// DeclaredTopic is a topic of four shards that makes its direct exchange, of the
// topic's name, and a classic queue of the routing key's name, <name>.due; with
// more or other keys.
func DeclaredTopic(name string, changes Topic) Topic {
	return Topic{
		"shards": 4, "exchange": name, "routing_key": name + ".due",
		"declare": map[string]any{"type": "direct", "queue": name + ".due", "queue_type": "classic"},
	}.With(changes)
}

// Pairs are the keys as arguments of scanner topic set: key=value, with dots for
// sections.
func (t Topic) Pairs() []string { return pairs("", t) }

func pairs(prefix string, doc map[string]any) []string {
	var all []string
	for k, v := range doc {
		if section, ok := v.(map[string]any); ok {
			all = append(all, pairs(prefix+k+".", section)...)
			continue
		}
		all = append(all, fmt.Sprintf("%s%s=%v", prefix, k, v))
	}
	return all
}

// Settings are those of a fleet. Where a scanner listens is its own: see
// ScannerConfig.Admin.
type Settings struct {
	// RedisAddr is host:port, or those of a Redis Cluster or of sentinels with
	// commas between, and RedisPrefix what every key begins with.
	RedisAddr, RedisPrefix string
	// RabbitMQURL is an amqp URL, or several with commas between.
	RabbitMQURL string
	// ConsulAddr is host:port; empty: the topics below are used. ConsulPrefix
	// is what Consul's keys begin with.
	ConsulAddr, ConsulPrefix string
	// ShutdownTimeout as in the configuration. Defaults to the scanner's own.
	ShutdownTimeout string
	// Topics by name.
	Topics map[string]Topic
	// More are other keys of the sections, by section; they win.
	More map[string]Topic
}

// Document is the settings as the configuration's sections.
func (s Settings) Document() map[string]any {
	doc := map[string]any{
		"redis":    map[string]any{"addrs": strings.Split(s.RedisAddr, ","), "prefix": s.RedisPrefix},
		"rabbitmq": map[string]any{"urls": strings.Split(s.RabbitMQURL, ",")},
	}
	if s.ConsulAddr != "" {
		doc["consul"] = map[string]any{"addr": s.ConsulAddr, "prefix": s.ConsulPrefix}
	}
	if s.ShutdownTimeout != "" {
		doc["shutdown_timeout"] = s.ShutdownTimeout
	}
	if len(s.Topics) > 0 {
		doc["topics"] = s.Topics
	}
	for name, keys := range s.More {
		section, _ := doc[name].(map[string]any)
		doc[name] = Topic(section).With(keys)
	}
	return doc
}

// WriteConfig writes a document as YAML. The file changes in one step, so that
// a scanner that watches it never reads half of it.
func WriteConfig(path string, document any) error {
	b, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, b)
}

// WriteFile writes a file in one step: whoever reads it sees the old content or
// the new.
func WriteFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
