// Package config holds the settings: their types, defaults and rules, and the ways to
// read them. There are two kinds. The settings of connections come from a file and the
// environment, and stay the same while a process runs. The settings of topics come from
// Consul, one document for each topic, or from the file. They may change at any time; see
// Source.
//
// Each setting is defined by a struct field. Its tags give the name in documents, the
// default and the rule for the value; see field. They apply to the file, the environment,
// Consul's documents and the operator's edits alike. The field's comment becomes the
// key's comment in config.example.yaml.
package config

import "time"

// Config holds all settings of one process.
type Config struct {
	Redis    Redis    `yaml:"redis"`
	RabbitMQ RabbitMQ `yaml:"rabbitmq"`
	Consul   Consul   `yaml:"consul"`
	Admin    Admin    `yaml:"admin"`
	Console  Console  `yaml:"console"`
	Log      Log      `yaml:"log"`
	// How long a stopping scanner may take to settle its tasks in flight, 100ms to 10m.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" default:"15s" check:"100ms..10m"`
	// Memory of a scanner for the tasks it has in flight, over all topics, in bytes, 1048576 to 1073741824.
	InFlightBytes int `yaml:"in_flight_bytes" default:"67108864" check:"1048576..1073741824"`
	// Largest payload producer accepts, 1 to 16777216 bytes; raise consumers' MaxPayload first, or they park larger tasks.
	MaxPayload int `yaml:"max_payload" default:"262144" check:"1..16777216"`

	// Topics are the file's topics, by name. If Consul.Addr is set, Consul's topics are
	// served instead.
	Topics map[string]Topic
	// SecretFiles are the files with secrets, private keys included; see connect.Exposed.
	SecretFiles []string
}

// Redis is where tasks are stored.
type Redis struct {
	// A server, or one or more nodes of a cluster; with master_name: sentinels.
	Addrs []string `yaml:"addrs" default:"127.0.0.1:6379" check:"addresses"`
	// The master's name among sentinels.
	MasterName string `yaml:"master_name" check:"0..255"`
	// Empty: the server's default user.
	Username string `yaml:"username" secret:"true"`
	// Empty: none.
	Password string `yaml:"password" secret:"true"`
	// Number of the database; 0 in a cluster.
	DB  int `yaml:"db" default:"0" check:"0..65535"`
	TLS TLS `yaml:"tls"`
	// Prefix of every key.
	Prefix string `yaml:"prefix" default:"duefleet" check:"prefix"`
	// Replicas that must confirm a write before it succeeds; see docs/deploy.md.
	MinReplicas int `yaml:"min_replicas" default:"0" check:"0..10"`
	// UsernameFile and PasswordFile are the files with these secrets; empty: none.
	UsernameFile, PasswordFile string
}

// RabbitMQ is where due tasks go.
type RabbitMQ struct {
	// Tried in turn.
	URLs []string `yaml:"urls" default:"amqp://guest:guest@127.0.0.1:5672/" check:"amqp urls" secret:"true"`
	// For amqps URLs.
	TLS TLS `yaml:"tls"`
	// URLsFile is the file with the URLs; empty: none.
	URLsFile string
}

// Consul is where topics come from, if Addr is set.
type Consul struct {
	// Host:port or URL; empty: the topics in this file apply, which is re-read when it changes.
	Addr string `yaml:"addr" check:"url or address"`
	// ACL token; empty: CONSUL_HTTP_TOKEN's, if that is set.
	Token string `yaml:"token" secret:"true"`
	TLS   TLS    `yaml:"tls"`
	// Topics live under <prefix>/topics/<name>, one YAML or JSON document each.
	Prefix string `yaml:"prefix" default:"duefleet" check:"folder"`
	// TokenFile is the file with the token; empty: none.
	TokenFile string
}

// Admin is the HTTP server for probes and metrics.
type Admin struct {
	// /livez /readyz /metrics.
	//
	// The host may be left out; port 0 takes a free one.
	Listen string `yaml:"listen" default:"127.0.0.1:9320" check:"listen"`
	// /metrics has a series per shard for topics of at most this many shards, else per topic; 0 to 4096.
	ShardSeries int `yaml:"shard_series" default:"64" check:"0..4096"`
	// /metrics has series per topic while there are at most this many, else for all together; 1 to 100000.
	TopicSeries int `yaml:"topic_series" default:"100" check:"1..100000"`
}

// Console is the web server of scanner console; see docs/console.md.
type Console struct {
	// Beyond 127.0.0.1 it needs users_file, token or trust_header.
	Listen string `yaml:"listen" default:"127.0.0.1:8390" check:"listen"`
	// The console's /livez /readyz /metrics.
	AdminListen string    `yaml:"admin_listen" default:"127.0.0.1:8391" check:"listen"`
	TLS         ServerTLS `yaml:"tls"`
	// Users who may sign in, a line user:hash[:role] each, with hashes of htpasswd -B; role: view or operate.
	UsersFile string `yaml:"users_file" check:"0..4096"`
	// Signs in programs and people as operators, at least 16 bytes; empty: none.
	Token string `yaml:"token" secret:"true"`
	// Header with the user's name that an authenticating proxy sets; empty: none.
	TrustHeader string `yaml:"trust_header" check:"0..64"`
	// Role of the proxy's users who aren't in users_file: view or operate.
	TrustRole string `yaml:"trust_role" default:"view" check:"view|operate"`
	// Show payloads and AMQP headers of tasks to everybody who may sign in: true or false.
	ShowPayloads bool `yaml:"show_payloads" default:"false"`
	// TokenFile is the file with the token; empty: none.
	TokenFile string
}

// Log is how the process logs.
type Log struct {
	// Debug, info, warn or error.
	Level string `yaml:"level" default:"info" check:"debug|info|warn|error"`
	// Text or json.
	Format string `yaml:"format" default:"text" check:"text|json"`
}

// ServerTLS encrypts what a server of duefleet sends.
type ServerTLS struct {
	// This server's PEM certificate; empty: no encryption.
	CertFile string `yaml:"cert_file" check:"0..4096"`
	// Its PEM key.
	KeyFile string `yaml:"key_file" check:"0..4096"`
}

// TLS is how to encrypt one connection.
type TLS struct {
	// True or false.
	Enabled bool `yaml:"enabled" default:"false"`
	// PEM certificates to trust; empty: the system's.
	CAFile string `yaml:"ca_file" check:"0..4096"`
	// This client's PEM certificate.
	CertFile string `yaml:"cert_file" check:"0..4096"`
	// Its PEM key.
	KeyFile string `yaml:"key_file" check:"0..4096"`
	// The name in the server's certificate; empty: the host dialled.
	ServerName string `yaml:"server_name" check:"0..255"`
}

// Defaults returns the Config of an empty file and environment.
func Defaults() Config {
	c := Config{Topics: map[string]Topic{}}
	setDefaults(&c)
	return c
}
