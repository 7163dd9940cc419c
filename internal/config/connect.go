package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/redisdial"
)

// Options returns options for redis.NewUniversalClient, which makes a client of one
// server, a cluster or sentinels. Each new connection reads the files of secrets and TLS;
// see Fresh. An error is about the TLS files.
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
		Dialer:                     redisdial.New(redisdial.Config{TLS: secure}).Dial,
	}, nil
}

// credentials returns nil if neither the user nor the password comes from a file.
func (r Redis) credentials(log *slog.Logger) func(context.Context) (user, password string, err error) {
	if r.UsernameFile == "" && r.PasswordFile == "" {
		return nil
	}
	user := freshSecret("redis.username", r.UsernameFile, r.Username, nil, log)
	password := freshSecret("redis.password", r.PasswordFile, r.Password, nil, log)
	return func(context.Context) (string, string, error) { return user(), password(), nil }
}

// Fresh returns a function for the current URLs in urls_file, and one for the current TLS
// settings. If a file can't be used, its last good value stays in use, and the log says
// so once. An error is about the TLS files. log may be nil.
func (r RabbitMQ) Fresh(log *slog.Logger) (urls func() []string, secure func() *tls.Config, err error) {
	secure, err = r.TLS.Fresh("rabbitmq.tls", log)
	check := func(urls []string) error { return errors.Join(r.unencrypted(urls)...) }
	return freshSecret("rabbitmq.urls", r.URLsFile, r.URLs, check, log), secure, err
}

// Fresh is like RabbitMQ.Fresh, for Consul's token; "" if none is configured.
func (c Consul) Fresh(log *slog.Logger) (token func() string, secure func() *tls.Config, err error) {
	secure, err = c.TLS.Fresh("consul.tls", log)
	return freshSecret("consul.token", c.TokenFile, c.Token, nil, log), secure, err
}

// Fresh returns a function for the current token; "" if none is configured. If token_file
// can't be used, the last good token stays in use, and the log says so once.
func (c Console) Fresh(log *slog.Logger) (token func() string) {
	return freshSecret("console.token", c.TokenFile, c.Token, nil, log)
}

// freshSecret returns a function for the current value of a secret in file, or for value
// if there is no file. value is also in use until the file is read again. check, if not
// nil, refuses a new value that doesn't fit other keys.
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

// Fresh returns a function for the tls.Config of the current files. The function returns
// nil if TLS is not enabled. Callers must not change its result. The pointer stays the
// same until the files change. If files can't be used, the last good value stays in use,
// and the log says so once. An error means that they can't be used now. log may be nil.
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

// Fresh returns the settings of a server, nil without a certificate. Each connection uses
// the current files, as with TLS.Fresh.
func (t ServerTLS) Fresh(section string, log *slog.Logger) (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	current, err := TLS{Enabled: true, CertFile: t.CertFile, KeyFile: t.KeyFile}.Fresh(section, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &current().Certificates[0], nil
	}}, nil
}

// files returns the files that a connection needs.
func (t TLS) files() []string {
	return slices.DeleteFunc([]string{t.CAFile, t.CertFile, t.KeyFile}, func(path string) bool { return path == "" })
}

// Config reads the files and returns a new tls.Config, or nil if TLS is not enabled. It
// leaves an empty ServerName to the dialling library, which uses the host.
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

// roots returns nil for the system's authorities.
func (t TLS) roots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pem, err := readRegular(t.CAFile)
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
