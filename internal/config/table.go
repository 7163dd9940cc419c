package config

import (
	"time"

	"github.com/duefleet/duefleet/task"
)

// configFields is every key outside topics.
func configFields() table[Config] {
	t := table[Config]{
		{key: "redis.addrs", at: func(c *Config) any { return &c.Redis.Addrs }, rule: dialAddrs,
			doc: "one: a server; several: a cluster; with master_name: sentinels"},
		{key: "redis.master_name", at: func(c *Config) any { return &c.Redis.MasterName }, rule: length(0, 255),
			doc: "the master's name among sentinels"},
		{key: "redis.username", at: func(c *Config) any { return &c.Redis.Username }, secret: true,
			doc: "empty: the server's default user"},
		{key: "redis.password", at: func(c *Config) any { return &c.Redis.Password }, secret: true,
			doc: "empty: none"},
		{key: "redis.db", at: func(c *Config) any { return &c.Redis.DB }, rule: between(0, 65535),
			doc: "number of the database; 0 in a cluster"},
	}
	t = append(t, tlsFields("redis", func(c *Config) *TLS { return &c.Redis.TLS })...)
	t = append(t, table[Config]{
		{key: "redis.prefix", at: func(c *Config) any { return &c.Redis.Prefix }, rule: letters("._-:/", 64),
			doc: "of every key"},
		{key: "redis.min_replicas", at: func(c *Config) any { return &c.Redis.MinReplicas }, rule: between(0, 10),
			doc: "that must have what is stored or moved before it counts; see docs/operations.md"},
		{key: "rabbitmq.urls", at: func(c *Config) any { return &c.RabbitMQ.URLs }, rule: amqpURLs, secret: true,
			doc: "tried in turn"},
	}...)
	t = append(t, tlsFields("rabbitmq", func(c *Config) *TLS { return &c.RabbitMQ.TLS })...)
	t = append(t, table[Config]{
		{key: "consul.addr", at: func(c *Config) any { return &c.Consul.Addr }, rule: consulAddr,
			doc: "host:port or URL; empty: the topics below are used, re-read when the file changes"},
		{key: "consul.token", at: func(c *Config) any { return &c.Consul.Token }, secret: true,
			doc: "ACL token; empty: CONSUL_HTTP_TOKEN's, if that is set"},
	}...)
	t = append(t, tlsFields("consul", func(c *Config) *TLS { return &c.Consul.TLS })...)
	return append(t, table[Config]{
		{key: "consul.prefix", at: func(c *Config) any { return &c.Consul.Prefix }, rule: folder,
			doc: "topics live under <prefix>/topics/<name>, one YAML or JSON document each"},
		{key: "admin.listen", at: func(c *Config) any { return &c.Admin.Listen }, rule: hostPort,
			doc: "/livez /readyz /metrics"},
		{key: "admin.shard_series", at: func(c *Config) any { return &c.Admin.ShardSeries }, rule: between(0, 4096),
			doc: "a topic with more shards is shown as a whole by /metrics, 0 to 4096"},
		{key: "log.level", at: func(c *Config) any { return &c.Log.Level }, rule: oneOf("debug", "info", "warn", "error"),
			doc: "debug, info, warn or error"},
		{key: "log.format", at: func(c *Config) any { return &c.Log.Format }, rule: oneOf("text", "json"),
			doc: "text or json"},
		{key: "shutdown_timeout", at: func(c *Config) any { return &c.ShutdownTimeout }, rule: during(100*time.Millisecond, 10*time.Minute),
			doc: "how long to settle what is in flight, 100ms to 10m"},
		{key: "max_payload", at: func(c *Config) any { return &c.MaxPayload }, rule: between(1, task.MaxMaxPayload),
			doc: "largest payload that producer takes, in bytes, 1 to 16777216"},
	}...).withFiles()
}

func tlsFields(section string, at func(*Config) *TLS) table[Config] {
	section += ".tls."
	return table[Config]{
		{key: section + "enabled", at: func(c *Config) any { return &at(c).Enabled },
			doc: "true or false"},
		{key: section + "ca_file", at: func(c *Config) any { return &at(c).CAFile }, rule: length(0, 4096),
			doc: "PEM certificates to trust; empty: the system's"},
		{key: section + "cert_file", at: func(c *Config) any { return &at(c).CertFile }, rule: length(0, 4096),
			doc: "this client's PEM certificate"},
		{key: section + "key_file", at: func(c *Config) any { return &at(c).KeyFile }, rule: length(0, 4096),
			doc: "its PEM key"},
		{key: section + "server_name", at: func(c *Config) any { return &at(c).ServerName }, rule: length(0, 255),
			doc: "the name in the server's certificate; empty: the host dialled"},
	}
}

// topicFields is every key of a topic's document.
func topicFields() table[Topic] {
	return table[Topic]{
		{key: "shards", at: func(t *Topic) any { return &t.Shards }, rule: between(1, 4096),
			doc: "M, 1 to 4096"},
		{key: "exchange", at: func(t *Topic) any { return &t.Exchange }, rule: length(0, 255),
			doc: "must exist unless declare is given; the topic's name by default"},
		{key: "routing_key", at: func(t *Topic) any { return &t.RoutingKey }, rule: length(0, 255),
			doc: "the topic's name by default"},
		{key: "declare.type", at: declared(func(d *Declare) any { return &d.Type }), rule: oneOf("direct", "topic", "fanout"),
			doc: "of the exchange: direct, topic or fanout"},
		{key: "declare.queue", at: declared(func(d *Declare) any { return &d.Queue }), rule: queueName,
			doc: "required; bound to the exchange with routing_key"},
		{key: "declare.queue_type", at: declared(func(d *Declare) any { return &d.QueueType }), rule: oneOf("quorum", "classic"),
			doc: "quorum or classic"},
		{key: "tick", at: func(t *Topic) any { return &t.Tick }, rule: during(10*time.Millisecond, time.Minute),
			doc: "how long a worker stays with the shards its tickets drew, 10ms to 1m"},
		{key: "workers", at: func(t *Topic) any { return &t.Workers }, rule: between(0, 1024),
			doc: "per scanner, up to 1024, each with one shard; 0: as many as it takes for the fleet to cover all shards, at most 64"},
		{key: "batch", at: func(t *Topic) any { return &t.Batch }, rule: between(1, 1000),
			doc: "most tasks in one claim, 1 to 1000"},
		{key: "window", at: func(t *Topic) any { return &t.Window }, rule: between(1, 100_000),
			doc: "most unconfirmed messages a scanner has in flight for this topic, 1 to 100000"},
		{key: "lease", at: func(t *Topic) any { return &t.Lease }, rule: during(time.Second, time.Hour),
			doc: "how long a claim holds, 1s to 1h"},
		{key: "max_attempts", at: func(t *Topic) any { return &t.MaxAttempts }, rule: between(1, 1000),
			doc: "returned or refused by the broker this often: parked; 1 to 1000"},
		{key: "backoff.min", at: func(t *Topic) any { return &t.Backoff.Min }, rule: during(time.Millisecond, 24*time.Hour),
			doc: "wait after the first attempt, doubled with each; 1ms to 24h"},
		{key: "backoff.max", at: func(t *Topic) any { return &t.Backoff.Max }, rule: during(time.Millisecond, 24*time.Hour),
			doc: "the longest wait, min to 24h"},
		{key: "rate", at: func(t *Topic) any { return &t.Rate }, rule: between(0, 1_000_000),
			doc: "tasks a second over the whole fleet, up to 1000000; 0: no limit"},
		{key: "paused", at: func(t *Topic) any { return &t.Paused },
			doc: "true: nothing is forwarded, everything is stored"},
	}
}

// declared reaches into the declare section and makes it where it is missing.
func declared(part func(*Declare) any) func(*Topic) any {
	return func(t *Topic) any {
		if t.Declare == nil {
			t.Declare = defaultDeclare()
		}
		return part(t.Declare)
	}
}
