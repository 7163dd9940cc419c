package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

// Options returns what redis.NewUniversalClient takes: it makes a client of
// one server, of a cluster or of sentinels. The error is that of the TLS files.
func (r Redis) Options() (*redis.UniversalOptions, error) {
	secure, err := r.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	return &redis.UniversalOptions{
		Addrs:      r.Addrs,
		MasterName: r.MasterName,
		Username:   r.Username,
		Password:   r.Password,
		DB:         r.DB,
		TLSConfig:  secure,
	}, nil
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
