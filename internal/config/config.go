// Package config holds the settings: their types, defaults and checks, and
// the ways to read them. Connections come from a file and the environment and
// stay fixed while a process runs. Topics come from Consul, one document each,
// or from the file, and may change at any time; see Source. Every setting is
// one line of a table that file, environment, Consul and the operator's edits
// share.
package config

import (
	"time"

	"github.com/duefleet/duefleet/task"
)

// Config is everything one process needs to know.
type Config struct {
	Redis    Redis
	RabbitMQ RabbitMQ
	Consul   Consul
	Admin    Admin
	Log      Log
	// ShutdownTimeout is how long a stopping scanner settles what is in
	// flight, 100ms to 10m. Defaults to 15s.
	ShutdownTimeout time.Duration
	// MaxPayload is the largest payload that command producer takes, in bytes,
	// 1 to 16 MiB. Defaults to 256 KiB.
	MaxPayload int
	// Topics are those of the file, by name. With Consul.Addr set they are
	// not served: Consul's are.
	Topics map[string]Topic
	// SecretFiles are the files that secrets were read from, and those of private
	// keys; see Exposed.
	SecretFiles []string
}

// Redis is where tasks are stored.
type Redis struct {
	// Addrs are host:port: one is a server, several are a cluster, and with
	// MasterName they are sentinels. Defaults to 127.0.0.1:6379.
	Addrs []string
	// MasterName is the master's name that sentinels know. Defaults to none.
	MasterName string
	// Username and Password authenticate at the server. They default to none.
	Username, Password string
	// DB is the number of the database; a cluster has only 0. Defaults to 0.
	DB  int
	TLS TLS
	// Prefix begins every key. Defaults to duefleet.
	Prefix string
	// MinReplicas of the server must have what moves between shards, and what
	// command producer stores, before it counts as done, 0 to 10. Defaults to 0.
	MinReplicas int
}

// RabbitMQ is where due tasks go.
type RabbitMQ struct {
	// URLs are AMQP URLs, tried in turn; they hold passwords. Defaults to
	// amqp://guest:guest@127.0.0.1:5672/.
	URLs []string
	// TLS is what amqps URLs are dialled with; without it they trust the
	// system's certificates.
	TLS TLS
}

// Consul is where topics come from, if Addr is set.
type Consul struct {
	// Addr is host:port or an http or https URL. Defaults to none: the topics
	// are the file's.
	Addr string
	// Token is the ACL token. Defaults to what CONSUL_HTTP_TOKEN says, as for
	// every client of Consul.
	Token string
	TLS   TLS
	// Prefix begins every key: topics live under <prefix>/topics/. Defaults
	// to duefleet.
	Prefix string
}

// Admin is the HTTP server for probes and metrics.
type Admin struct {
	// Listen is the host:port of it; port 0 takes a free one. Defaults to
	// 127.0.0.1:9320.
	Listen string
	// ShardSeries is the most shards of a topic that /metrics shows one by one, 0 to
	// 4096: of a topic with more it shows all of them as one. Defaults to 64.
	ShardSeries int
}

// Log is how the process logs.
type Log struct {
	// Level is debug, info, warn or error. Defaults to info.
	Level string
	// Format is text or json. Defaults to text.
	Format string
}

// TLS is how to encrypt one connection.
type TLS struct {
	// Enabled turns it on. Defaults to false.
	Enabled bool
	// CAFile holds the PEM certificates to trust. Defaults to the system's.
	CAFile string
	// CertFile and KeyFile are this client's PEM certificate and key. They
	// default to none.
	CertFile, KeyFile string
	// ServerName is the name the server's certificate must bear. Defaults to
	// the host of the address dialled.
	ServerName string
}

// Defaults returns the Config of an empty file and environment.
func Defaults() Config {
	return Config{
		Redis:           Redis{Addrs: []string{"127.0.0.1:6379"}, Prefix: "duefleet"},
		RabbitMQ:        RabbitMQ{URLs: []string{"amqp://guest:guest@127.0.0.1:5672/"}},
		Consul:          Consul{Prefix: "duefleet"},
		Admin:           Admin{Listen: "127.0.0.1:9320", ShardSeries: 64},
		Log:             Log{Level: "info", Format: "text"},
		ShutdownTimeout: 15 * time.Second,
		MaxPayload:      task.DefaultMaxPayload,
		Topics:          map[string]Topic{},
	}
}
