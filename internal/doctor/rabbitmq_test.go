package doctor

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAdviceGrantsTheLeastRights: after the loss of a vhost, doctor names the rights that the
// topics need.
func TestAdviceGrantsTheLeastRights(t *testing.T) {
	t.Parallel()
	broker := servertest.RabbitMQ(t)
	at, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	o := newTarget(t, "rabbitmq: {urls: ['"+broker+"-lost']}\ntopics: {orders: {shards: 1, declare: {queue: "+
		"orders.due, dead_letter: orders.dead}, intake: {exchange: orders.in, queue: in}}, "+
		"mails: {shards: 1, exchange: amq.direct}}\n")
	vhost := strings.TrimPrefix(at.Path, "/") + "-lost"
	want := "rabbitmqctl add_vhost " + vhost + "; then rabbitmqctl set_permissions -p " + vhost + " guest " +
		`'^(in|in\.refused|orders|orders\.dead|orders\.due|orders\.in|orders\.in\.canary)$' ` +
		`'^(amq\.default|amq\.direct|in|in\.refused|orders|orders\.dead|orders\.due|orders\.in)$' ` +
		`'^(in|in\.refused|orders|orders\.dead|orders\.due|orders\.in|orders\.in\.canary)$'`
	if got := o.found("rabbitmq.connection"); !strings.HasSuffix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestDoctorWarnsBeforeTheCertificateOfAServerEnds: the certificate of these tests ends
// within the hour. A server without TLS has none.
func TestDoctorWarnsBeforeTheCertificateOfAServerEnds(t *testing.T) {
	t.Parallel()
	amqp := servertest.RabbitMQ(t)
	newTarget(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\n", amqp)).finds("without TLS", "certificates", "")
	amqps, pool := servertest.OverTLS(t, amqp)
	u, err := url.Parse(amqps)
	check.OK(t, err)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	check.OK(t, err)
	block := &pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw}
	check.OK(t, conn.Close())
	ca := filepath.Join(t.TempDir(), "ca.pem")
	check.OK(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	o := newTarget(t, fmt.Sprintf("rabbitmq: {urls: ['%s'], tls: {enabled: true, ca_file: '%s'}}\n", amqps, ca))
	o.finds("over TLS", "certificates", "warn: the certificate of RabbitMQ at "+u.Host+" ends at ")
}
