// Package connect makes options of clients, TLS configurations and secrets from the settings
// of connections. It reads files of secrets and TLS again when they change, and knows what to do
// about errors of servers. It opens no connection.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/redisdial"
)

// Redis returns options for redis.NewUniversalClient, which makes a client of one server, a
// cluster or sentinels. Each new connection reads the files of secrets and TLS; see TLS. An
// error is about the TLS files. log may be nil.
func Redis(r config.Redis, log *slog.Logger) (*redis.UniversalOptions, error) {
	secure, err := TLS("redis.tls", r.TLS, log)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:                      r.Addrs,
		MasterName:                 r.MasterName,
		Username:                   r.Username,
		Password:                   r.Password,
		CredentialsProviderContext: credentials(r, log),
		DB:                         r.DB,
		TLSConfig:                  secure(),
		Dialer:                     redisdial.New(redisdial.Config{TLS: secure}).Dial,
	}, nil
}

// credentials returns nil if neither the user nor the password comes from a file.
func credentials(r config.Redis, log *slog.Logger) func(context.Context) (user, password string, err error) {
	if r.UsernameFile == "" && r.PasswordFile == "" {
		return nil
	}
	user := freshSecret("redis.username", r.UsernameFile, r.Username, nil, log)
	password := freshSecret("redis.password", r.PasswordFile, r.Password, nil, log)
	return func(context.Context) (string, string, error) { return user(), password(), nil }
}

// RabbitMQ returns a function for the current URLs in urls_file, and one for the current TLS
// configuration. If a file can't be used, its last good value stays in use, and the log says
// so once. An error is about the TLS files. log may be nil.
func RabbitMQ(r config.RabbitMQ, log *slog.Logger) (urls func() []string, secure func() *tls.Config, err error) {
	secure, err = TLS("rabbitmq.tls", r.TLS, log)
	check := func(urls []string) error { return errors.Join(r.Unencrypted(urls)...) }
	return freshSecret("rabbitmq.urls", r.URLsFile, r.URLs, check, log), secure, err
}

// Consul is like RabbitMQ, for Consul's token; "" if none is configured.
func Consul(c config.Consul, log *slog.Logger) (token func() string, secure func() *tls.Config, err error) {
	secure, err = TLS("consul.tls", c.TLS, log)
	return freshSecret("consul.token", c.TokenFile, c.Token, nil, log), secure, err
}

// ConsoleToken returns a function for the console's current token; "" if none is configured.
// If token_file can't be used, the last good token stays in use, and the log says so once.
func ConsoleToken(c config.Console, log *slog.Logger) (token func() string) {
	return freshSecret("console.token", c.TokenFile, c.Token, nil, log)
}

// freshSecret returns a function for the current value of a secret in file, or for value
// if there is no file. value is also in use until the file is read again. check, if not
// nil, refuses a new value that doesn't fit other keys.
func freshSecret[T any](key, file string, value T, check func(T) error, log *slog.Logger) func() T {
	if file == "" {
		return func() T { return value }
	}
	read := func() (T, error) {
		read, err := config.ReadSecret(key, file)
		if err != nil {
			return value, err
		}
		if check != nil {
			return read.(T), check(read.(T))
		}
		return read.(T), nil
	}
	return freshFrom(value, key+"_file", []string{file}, read, log).get
}

// TLS returns a function for the tls.Config of the current files. The function returns nil
// if TLS is not enabled. Callers must not change its result. The pointer stays the same
// until the files change. If files can't be used, the last good value stays in use, and the
// log says so once. An error means that they can't be used now. section is the section's
// key, such as redis.tls, for errors and the log. log may be nil.
func TLS(section string, t config.TLS, log *slog.Logger) (func() *tls.Config, error) {
	if !t.Enabled {
		return func() *tls.Config { return nil }, nil
	}
	f, err := newFresh(section, filesOf(t), func() (*tls.Config, error) { return ReadTLS(t) }, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", section, err)
	}
	return f.get, nil
}

// ServerTLS returns the configuration of a server, nil without a certificate. Each connection
// uses the current files, as with TLS.
func ServerTLS(section string, t config.ServerTLS, log *slog.Logger) (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	current, err := TLS(section, config.TLS{Enabled: true, CertFile: t.CertFile, KeyFile: t.KeyFile}, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &current().Certificates[0], nil
	}}, nil
}

// filesOf returns the files that a connection needs.
func filesOf(t config.TLS) []string {
	return slices.DeleteFunc([]string{t.CAFile, t.CertFile, t.KeyFile}, func(path string) bool { return path == "" })
}

// ReadTLS reads the files once and returns a new tls.Config, or nil if TLS is not enabled. It
// leaves an empty ServerName to the dialling library, which uses the host. An error means
// that a file can't be used.
func ReadTLS(t config.TLS) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	roots, err := t.Roots()
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	certificates, err := t.Certificates()
	if err != nil {
		return nil, fmt.Errorf("cert_file: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      roots,
		Certificates: certificates,
		ServerName:   t.ServerName,
	}, nil
}
