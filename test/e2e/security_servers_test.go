package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	// adminPassword is the password of Redis's default user, who has all rights.
	adminPassword = "mark-redis-admin"
	// masterToken has all rights in Consul.
	masterToken = "5ec2e7ed-0000-4000-8000-00000000ad31"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	file string // the path of its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is the paths of a certificate and its key.
type pair struct{ cert, key string }

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = template, a.newKey()
	der := a.sign(template, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write(name+".pem", "CERTIFICATE", der)
	return a
}

// issue makes a certificate for 127.0.0.1, valid until end, for servers and clients.
func (a *authority) issue(name string, end time.Time) pair {
	a.t.Helper()
	key := a.newKey()
	der := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-24 * time.Hour), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair{a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", raw)}
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// guarded holds the servers of one test. They require authentication. Each has a port
// with TLS, which requires a client certificate, and a port without TLS.
type guarded struct {
	t        *testing.T
	ca       *authority
	redis    *servers.Redis
	rabbitmq *servers.RabbitMQ
	consul   *servers.Consul
	logs     string // the parent folder of the servers' logs
	// These are the addresses with TLS.
	redisTLS, rabbitmqTLS, consulTLS string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	servertest.Need(t, "redis-server", "rabbitmq-server", "consul")
	g := &guarded{t: t, ca: newAuthority(t, "authority")}
	own := g.ca.issue("server", time.Now().Add(time.Hour))
	for _, addr := range []*string{&g.redisTLS, &g.rabbitmqTLS, &g.consulTLS} {
		var err error
		if *addr, err = fleet.FreeAddress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	g.logs = dir
	var starting errgroup.Group
	starting.Go(func() (err error) {
		g.redis, err = servers.StartRedis(t.Context(), servers.RedisConfig{Dir: filepath.Join(dir, "redis"),
			Args: g.redisArgs(own)})
		return err
	})
	starting.Go(func() (err error) {
		g.rabbitmq, err = servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: filepath.Join(dir, "rabbitmq"),
			Conf: g.rabbitmqConf(own)})
		return err
	})
	starting.Go(func() (err error) {
		g.consul, err = servers.StartConsul(t.Context(), servers.ConsulConfig{Dir: filepath.Join(dir, "consul"),
			HCL: g.consulHCL(own)})
		return err
	})
	err := starting.Wait()
	t.Cleanup(g.kill)
	if err != nil {
		t.Fatal(err)
	}
	g.awaitMaster()
	return g
}

func (g *guarded) kill() {
	if g.redis != nil {
		_ = g.redis.Kill()
	}
	if g.rabbitmq != nil {
		_ = g.rabbitmq.Kill()
	}
	if g.consul != nil {
		_ = g.consul.Kill()
	}
}

func (g *guarded) redisArgs(own pair) []string {
	return []string{
		"--requirepass", adminPassword, "--tls-port", port(g.redisTLS), "--tls-cert-file", own.cert, "--tls-key-file",
		own.key,
		"--tls-ca-cert-file", g.ca.file, "--tls-auth-clients", "yes",
	}
}

func (g *guarded) rabbitmqConf(own pair) string {
	return strings.Join([]string{
		"listeners.ssl.1 = " + g.rabbitmqTLS,
		"ssl_options.cacertfile = " + g.ca.file, "ssl_options.certfile = " + own.cert, "ssl_options.keyfile = " + own.key,
		"ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true",
	}, "\n")
}

func (g *guarded) consulHCL(own pair) string {
	return fmt.Sprintf(`
		ports { https = %s }
		tls { https { ca_file = %q cert_file = %q key_file = %q verify_incoming = true } }
		acl { enabled = true default_policy = "deny" tokens { initial_management = %q agent = %q } }`,
		port(g.consulTLS), g.ca.file, own.cert, own.key, masterToken, masterToken)
}

func port(addr string) string {
	_, p, _ := strings.Cut(addr, ":")
	return p
}

// awaitMaster waits until Consul accepts masterToken.
func (g *guarded) awaitMaster() {
	g.t.Helper()
	client := g.master()
	check.Until(g.t, "consul to know its first token", func() bool {
		_, _, err := client.ACL().TokenReadSelf(nil)
		return err == nil
	})
}

// master returns a Consul client with all rights.
func (g *guarded) master() *consul.Client {
	g.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: g.consul.Addr(), Token: masterToken})
	if err != nil {
		g.t.Fatal(err)
	}
	return client
}

// token makes a token with one policy.
func (g *guarded) token(name, rules string) string {
	g.t.Helper()
	acl := g.master().ACL()
	policy, _, err := acl.PolicyCreate(&consul.ACLPolicy{Name: name, Rules: rules}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	token, _, err := acl.TokenCreate(&consul.ACLToken{Policies: []*consul.ACLLink{{ID: policy.ID}}}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return token.SecretID
}

// ctl runs rabbitmqctl.
func (g *guarded) ctl(args ...string) {
	g.t.Helper()
	if _, err := g.rabbitmq.Ctl(g.t.Context(), args...); err != nil {
		g.t.Fatal(err)
	}
}

// amqp returns a user's URL without TLS.
func (g *guarded) amqp(user, password string) string {
	return strings.Replace(g.rabbitmq.URL("/"), "guest:guest", user+":"+password, 1)
}

// in returns the same servers for a subtest.
func (g *guarded) in(t *testing.T) *guarded {
	c := *g
	c.t = t
	return &c
}

// secured returns settings that use TLS for all three servers, with administrators'
// rights. An empty client means no client certificate.
func (g *guarded) secured(ca *authority, client pair) map[string]fleet.Topic {
	tls := map[string]any{"enabled": true, "ca_file": ca.file, "cert_file": client.cert, "key_file": client.key}
	return map[string]fleet.Topic{
		"redis":    {"addrs": []string{g.redisTLS}, "password": adminPassword, "tls": tls},
		"rabbitmq": {"urls": []string{"amqps://guest:guest@" + g.rabbitmqTLS + "/"}, "tls": tls},
		"consul":   {"addr": g.consulTLS, "token": masterToken, "tls": tls},
	}
}

// fixture returns a fixture without TLS, with more settings by section.
func (g *guarded) fixture(prefix string, more map[string]fleet.Topic) *fixture {
	g.t.Helper()
	settings := fleet.Settings{
		RedisAddr: g.redis.Addr(), RedisPrefix: prefix, RabbitMQURL: g.rabbitmq.URL("/"),
		ConsulAddr: g.consul.Addr(), ConsulPrefix: prefix, More: more,
	}
	return newFixtureOn(g.t, settings, &redis.UniversalOptions{Addrs: []string{g.redis.Addr()}, Password: adminPassword})
}

// newFixtureOn returns a fixture on servers that the test chooses. own is for the test's
// own connection to Redis.
func newFixtureOn(t *testing.T, settings fleet.Settings, own *redis.UniversalOptions) *fixture {
	t.Helper()
	w := &fixture{t: t, dir: t.TempDir(), own: *own, settings: settings, ends: map[string]chan struct{}{}}
	w.config = filepath.Join(w.dir, "config.yaml")
	w.settings.ShutdownTimeout = shutdownTimeout.String()
	w.redis = redis.NewUniversalClient(own)
	t.Cleanup(func() { _ = w.redis.Close() })
	w.enroll()
	w.write()

	offset, err := fleet.ClockOffset(t.Context(), w.redis)
	if err != nil {
		t.Fatal(err)
	}
	w.recorder = fleet.Recorder{Client: w.newClient(),
		Ledger: fleet.NewLedger(fleet.LedgerConfig{Offset: offset, Now: w.now})}
	t.Cleanup(w.end)
	return w
}
