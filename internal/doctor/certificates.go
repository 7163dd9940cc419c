package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
)

// certificateRest is how long before its end a server's certificate is a warning, as it is
// for a scanner's own files.
const certificateRest = 7 * 24 * time.Hour

// secured is a server that shows a certificate.
type secured struct {
	name, addr string
	tls        *tls.Config
}

// examineCertificates checks when the certificates of the servers end. The scanners watch
// their own files. It says nothing of a server that doesn't show its certificate: the check
// of the connection tells why.
func (p Target) examineCertificates(ctx context.Context, r *report) {
	const check = "certificates"
	servers := p.secured()
	shown := make([]*x509.Certificate, len(servers))
	var group sync.WaitGroup
	for i, s := range servers {
		group.Go(func() { shown[i] = s.certificate(ctx) })
	}
	group.Wait()
	for i, s := range servers {
		if shown[i] == nil {
			continue
		}
		end := shown[i].NotAfter
		text := "the certificate of " + s.name + " at " + s.addr + " ends at " + end.UTC().Format(time.RFC3339)
		if time.Until(end) < certificateRest {
			r.warn(check, "renew the certificate of "+s.name+": no scanner can connect after its end", "%s", text)
		} else {
			r.ok(check, "%s", text)
		}
	}
}

// secured returns the servers of the settings that use TLS. Settings that can't be used have
// a finding of their own.
func (p Target) secured() (servers []secured) {
	add := func(name, addr string, files config.TLS) {
		if c, err := connect.ReadTLS(files); err == nil && c != nil {
			servers = append(servers, secured{name, addr, c})
		}
	}
	for _, addr := range p.Settings.Redis.Addrs {
		add("Redis", addr, p.Settings.Redis.TLS)
	}
	base, err := connect.ReadTLS(p.Settings.RabbitMQ.TLS)
	for _, raw := range p.Settings.RabbitMQ.URLs {
		if s, parseErr := amqpconn.Parse(raw, base); err == nil && parseErr == nil && s.TLS != nil {
			servers = append(servers, secured{"RabbitMQ", s.Addr, s.TLS})
		}
	}
	if p.Consul != nil {
		_, addr, url := strings.Cut(p.Settings.Consul.Addr, "://")
		if !url {
			addr = p.Settings.Consul.Addr
		}
		add("Consul", addr, p.Settings.Consul.TLS)
	}
	return servers
}

// certificate returns the server's certificate; nil if there is no TLS connection.
func (s secured) certificate(ctx context.Context) *x509.Certificate {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: askLimit}, Config: s.tls}
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	return secure.ConnectionState().PeerCertificates[0]
}
