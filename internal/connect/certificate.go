package connect

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/config"
)

// Certificate is a file with certificates for connections: the client's own, or the
// authorities' certificates.
type Certificate struct {
	// Use is the section whose connections need it: redis, rabbitmq or consul.
	Use  string
	File string
	// Expires reads the file and returns when the first of its certificates ends.
	Expires func() time.Time
}

// Certificates returns the certificate files in use, each once per section. An error
// means that a file can't be used.
func Certificates(c *config.Config) ([]Certificate, error) {
	var all []Certificate
	for _, section := range []struct {
		name string
		tls  config.TLS
	}{{"redis", c.Redis.TLS}, {"rabbitmq", c.RabbitMQ.TLS}, {"consul", c.Consul.TLS}} {
		if !section.tls.Enabled {
			continue
		}
		for _, path := range slices.Compact([]string{section.tls.CAFile, section.tls.CertFile}) {
			if path == "" {
				continue
			}
			read := func() (time.Time, error) { return firstEnd(path) }
			f, err := newFresh(section.name+".tls", []string{path}, read, nil) // the connection's own reader logs errors
			if err != nil {
				return nil, fmt.Errorf("%s.tls: %w", section.name, err)
			}
			all = append(all, Certificate{Use: section.name, File: path, Expires: f.get})
		}
	}
	return all, nil
}

// firstEnd returns when the first certificate of a file ends.
func firstEnd(path string) (time.Time, error) {
	rest, err := config.ReadRegular(path)
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
			continue // crypto/tls and x509.CertPool skip it too
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

// readableByAll is the bit of a file's mode that lets every user read it.
const readableByAll = 0o004

// Exposed returns the SecretFiles of a Config that every user of the machine can read, each
// once. It leaves out files that don't exist any more.
func Exposed(c *config.Config) []string {
	if runtime.GOOS == "windows" { // its modes don't concern other users
		return nil
	}
	var all []string
	for _, path := range c.SecretFiles {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&readableByAll != 0 && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}
