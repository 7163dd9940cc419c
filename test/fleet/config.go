package fleet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// Topic is one topic's document, with the keys of the configuration.
type Topic map[string]any

// With returns a copy of the document with some keys added or replaced.
func (t Topic) With(changes Topic) Topic {
	c := Topic{}
	maps.Copy(c, t)
	maps.Copy(c, changes)
	return c
}

// DeclaredTopic returns a topic with four shards that declares its own exchange and
// queue. The direct exchange has the topic's name; the classic queue and the routing key
// are both <name>.due. The keys in changes are added or replace others.
func DeclaredTopic(name string, changes Topic) Topic {
	return Topic{
		"shards": 4, "exchange": name, "routing_key": name + ".due",
		"declare": map[string]any{"type": "direct", "queue": name + ".due", "queue_type": "classic"},
	}.With(changes)
}

// Pairs returns the keys as arguments for scanner topic set: key=value, with dots for
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

// Settings are a fleet's settings. Each scanner has its own admin address: see
// ScannerConfig.Admin.
type Settings struct {
	// RedisAddr is host:port, or several separated by commas for a Redis Cluster or
	// sentinels. RedisPrefix begins every key.
	RedisAddr, RedisPrefix string
	// RabbitMQURL is an amqp URL, or several separated by commas.
	RabbitMQURL string
	// ConsulAddr is host:port. If it is empty, Topics below are used. ConsulPrefix begins
	// every key in Consul.
	ConsulAddr, ConsulPrefix string
	// ShutdownTimeout is shutdown_timeout in the configuration. Defaults to the scanner's
	// own.
	ShutdownTimeout string
	// Topics by name.
	Topics map[string]Topic
	// More holds more keys by section. They win over the fields above.
	More map[string]Topic
}

// Document returns the settings as sections of the configuration.
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

// WriteConfig writes a document as YAML, in one step like WriteFile: a scanner that
// watches the file never reads half of it.
func WriteConfig(path string, document any) error {
	b, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, b)
}

// WriteFile writes a file in one step: a reader sees either the old content or the new.
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
