package config

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Certificate is a file of certificates that connections are made with: this client's
// own, or the authorities'.
type Certificate struct {
	// Use is the section whose connections need it: redis, rabbitmq or consul.
	Use  string
	File string
	// Expires looks at the file and returns when the first of its certificates ends.
	Expires func() time.Time
}

// Certificates are the files of certificates that are in use, each once a section. The
// error is that of a file.
func (c *Config) Certificates() ([]Certificate, error) {
	var all []Certificate
	for _, section := range []struct {
		name string
		tls  TLS
	}{{"redis", c.Redis.TLS}, {"rabbitmq", c.RabbitMQ.TLS}, {"consul", c.Consul.TLS}} {
		if !section.tls.Enabled {
			continue
		}
		for _, path := range slices.Compact([]string{section.tls.CAFile, section.tls.CertFile}) {
			if path == "" {
				continue
			}
			read := func() (time.Time, error) { return firstEnd(path) }
			f, err := newFresh(section.name+".tls", []string{path}, read, nil) // who connects logs it
			if err != nil {
				return nil, fmt.Errorf("%s.tls: %w", section.name, err)
			}
			all = append(all, Certificate{Use: section.name, File: path, Expires: f.get})
		}
	}
	return all, nil
}

// firstEnd is when the first of a file's certificates ends.
func firstEnd(path string) (time.Time, error) {
	if err := regular(path); err != nil {
		return time.Time{}, err
	}
	rest, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue // crypto/tls and x509.CertPool skip it, too
		}
		if first.IsZero() || cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	if first.IsZero() {
		return first, errors.New("no PEM certificate in " + path)
	}
	return first, nil
}
