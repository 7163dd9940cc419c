package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/dial"
)

// Options returns what redis.NewUniversalClient takes: it makes a client of
// one server, of a cluster or of sentinels. Each of its connections is made with the
// files of secrets and of TLS as they are then; see Fresh. The error is that of the
// TLS files.
func (r Redis) Options(log *slog.Logger) (*redis.UniversalOptions, error) {
	secure, err := r.TLS.Fresh("redis.tls", log)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:                      r.Addrs,
		MasterName:                 r.MasterName,
		Username:                   r.Username,
		Password:                   r.Password,
		CredentialsProviderContext: r.credentials(log),
		DB:                         r.DB,
		TLSConfig:                  secure(),
		Dialer:                     dial.New(dial.Config{TLS: secure}).Dial,
	}, nil
}

// credentials is nil where neither the user nor the password comes from a file.
func (r Redis) credentials(log *slog.Logger) func(context.Context) (user, password string, err error) {
	if r.UsernameFile == "" && r.PasswordFile == "" {
		return nil
	}
	user := freshSecret("redis.username", r.UsernameFile, r.Username, nil, log)
	password := freshSecret("redis.password", r.PasswordFile, r.Password, nil, log)
	return func(context.Context) (string, string, error) { return user(), password(), nil }
}

// Fresh returns a function that returns the URLs as urls_file is at that moment, and one
// for TLS. A file that can't be used leaves what it said before in use, and is logged
// once. The error is that of the TLS files. Log may be nil.
func (r RabbitMQ) Fresh(log *slog.Logger) (urls func() []string, secure func() *tls.Config, err error) {
	secure, err = r.TLS.Fresh("rabbitmq.tls", log)
	check := func(urls []string) error { return errors.Join(r.unencrypted(urls)...) }
	return freshSecret("rabbitmq.urls", r.URLsFile, r.URLs, check, log), secure, err
}

// Fresh is RabbitMQ.Fresh for Consul's token, which is "" where none is configured.
func (c Consul) Fresh(log *slog.Logger) (token func() string, secure func() *tls.Config, err error) {
	secure, err = c.TLS.Fresh("consul.tls", log)
	return freshSecret("consul.token", c.TokenFile, c.Token, nil, log), secure, err
}

// freshSecret returns a function for the value of a secret's key, whose file was read
// already, if there is one. Check, which may be nil, is of the value beside other keys.
func freshSecret[T any](key, file string, value T, check func(T) error, log *slog.Logger) func() T {
	if file == "" {
		return func() T { return value }
	}
	f, _ := configFields().find(key)
	read := func() (T, error) {
		read, problem := secretIn(f, file)
		if problem != "" {
			return value, errors.New(problem)
		}
		if check != nil {
			return read.(T), check(read.(T))
		}
		return read.(T), nil
	}
	return freshFrom(value, key+"_file", []string{file}, read, log).get
}

// Fresh returns a function for the tls.Config of the files at that moment, which callers
// must not change; nil when TLS is not enabled. It is the same pointer while the files
// are the same. Files that can't be used leave what they said before in use, and are
// logged once. The error is that of reading them now. Log may be nil.
func (t TLS) Fresh(section string, log *slog.Logger) (func() *tls.Config, error) {
	if !t.Enabled {
		return func() *tls.Config { return nil }, nil
	}
	f, err := newFresh(section, t.files(), t.Config, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", section, err)
	}
	return f.get, nil
}

// files are those that a connection is made with.
func (t TLS) files() []string {
	return slices.DeleteFunc([]string{t.CAFile, t.CertFile, t.KeyFile}, func(path string) bool { return path == "" })
}

// Config reads the files and returns a fresh tls.Config, or nil when TLS is
// not enabled. An empty ServerName is left to the dialling library, which
// takes the host.
func (t TLS) Config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	roots, err := t.roots()
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	certificates, err := t.certificates()
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

// roots is nil for the system's.
func (t TLS) roots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	if err := regular(t.CAFile); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no PEM certificate in " + t.CAFile)
	}
	return pool, nil
}

func (t TLS) certificates() ([]tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	for _, path := range []string{t.CertFile, t.KeyFile} {
		if err := regular(path); err != nil {
			return nil, err
		}
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{pair}, nil
}
