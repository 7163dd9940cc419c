package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	checked "github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestDoctorWarnsBeforeTheCertificateOfAServerEnds: the certificate of these tests ends
// within the hour. A server without TLS has none.
func TestDoctorWarnsBeforeTheCertificateOfAServerEnds(t *testing.T) {
	t.Parallel()
	amqp := servertest.RabbitMQ(t)
	newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\n", amqp)).finds("without TLS", "certificates", "")
	amqps, pool := servertest.OverTLS(t, amqp)
	u, err := url.Parse(amqps)
	checked.OK(t, err)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	checked.OK(t, err)
	block := &pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw}
	checked.OK(t, conn.Close())
	ca := filepath.Join(t.TempDir(), "ca.pem")
	checked.OK(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	o := newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s'], tls: {enabled: true, ca_file: '%s'}}\n", amqps, ca))
	o.finds("over TLS", "certificates", "warn: the certificate of RabbitMQ at "+u.Host+" ends at ")
}
