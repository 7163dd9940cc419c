package deploy_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// ownConsul starts a Consul for one test, with more configuration.
func ownConsul(t *testing.T, hcl string) *servers.Consul {
	t.Helper()
	server, err := servers.StartConsul(check.Context(t), servers.ConsulConfig{Dir: t.TempDir(), HCL: hcl})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, server.Kill()) })
	return server
}

// newTrialWithConsul returns a trial with a Consul of its own.
func newTrialWithConsul(t *testing.T) (*trial, *servers.Consul) {
	t.Helper()
	consul := ownConsul(t, "")
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = consul.Addr(), "duefleet"
	return newTrial(t, s), consul
}

func noConsul(t *testing.T) {
	tr, consul := newTrialWithConsul(t)
	check.OK(t, consul.Kill())
	tr.schedule("0s")
	tr.finds("consul.connection", "fail", "refused")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"consul_away"}, Exit: 4, Doctor: 1, Connect: 1,
		Ready: []int{200, 200}, Metrics: []string{"consul_away"}, Alerts: []string{"DuefleetConsulDown"}})
	check.OK(t, consul.Restart(t.Context()))
	tr.heals()
}

// startAlone: scanners that read their documents neither from Consul nor from Redis serve
// nothing.
func startAlone(t *testing.T) {
	k, consul := newKept(t, "redis.conf"), ownConsul(t, "")
	s := newSettings(t)
	s.RedisAddr, s.ConsulAddr, s.ConsulPrefix = k.server.Addr(), consul.Addr(), "duefleet"
	tr := newTrial(t, s)
	tr.stop()
	check.OK(t, errors.Join(k.server.Stop(t.Context()), consul.Kill()))
	tr.start()
	tr.finds("redis.connection", "fail", "refused", "consul.connection")
	tr.tell(verdicts{Exit: 1, Doctor: 1, Connect: 1, Ready: []int{503, 503},
		Metrics: []string{"consul_away", "not_configured", "redis_unreachable"},
		Alerts:  []string{"DuefleetConsulDown", "DuefleetRedisDown"}})
	k.restart()
	check.OK(t, consul.Restart(t.Context()))
	tr.heals()
}

// refusingConsul: the scanners lack the right to register a service.
func refusingConsul(t *testing.T) {
	const all = "5ab4e4d1-0000-4000-8000-000000000001"
	consul := ownConsul(t, fmt.Sprintf(`acl { enabled = true default_policy = "allow"
		tokens { initial_management = %q agent = %q default = %q } }`, all, all, all))
	client, err := api.NewClient(&api.Config{Address: consul.Addr(), Token: all})
	check.OK(t, err)
	s := newSettings(t)
	s.ConsulAddr, s.ConsulPrefix = consul.Addr(), "duefleet"
	tr := newTrial(t, s)
	policy, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: "keys",
		Rules: `service_prefix "" { policy = "deny" } key_prefix "" { policy = "write" }`}, nil)
	check.OK(t, err)
	keys, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
	check.OK(t, err)
	use := func(token string) {
		t.Helper()
		_, err := client.Agent().UpdateDefaultACLToken(token, nil)
		check.OK(t, err)
		tr.restart() // scanners register when they start
	}
	use(keys.SecretID)
	tr.schedule("0s")
	tr.says(tr.finds("consul.registration", "warn", "does not register this scanner")["consul.registration"],
		"give the scanner a token that has the rights in the text")
	tr.tell(verdicts{Status: problem.Healthy, Problems: []string{"consul_refuses"}, Ready: []int{200, 200},
		Metrics: []string{"consul_refuses"}})
	use(all)
	tr.heals()
}

func vanishedDocument(t *testing.T) {
	tr := newTrial(t, newSettings(t))
	cfg := api.DefaultConfig()
	cfg.Address = tr.settings.ConsulAddr
	client, err := api.NewClient(cfg)
	check.OK(t, err)
	_, err = client.KV().Delete(tr.settings.ConsulPrefix+"/topics/orders", nil)
	check.OK(t, err)
	tr.schedule("0s")
	advice := tr.finds("topic orders document", "fail", "an orphan: Redis holds")["topic orders document"]
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"topic_orphan orders"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"topic_orphan orders"}, Alerts: []string{"DuefleetProblemMinor"}})
	tr.run(tr.advised(advice, "scanner topic undo orders"))
	tr.heals()
}

func missingFile(t *testing.T) {
	tr, path := newTrialWithFile(t)
	check.OK(t, os.Rename(path, path+".away"))
	tr.schedule("0s")
	tr.says(tr.finds("fleet configuration", "fail", "no such file")["fleet configuration"],
		"bring the configuration file back")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"source_away"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"source_away"}, Alerts: []string{"DuefleetProblemMinor"}})
	check.OK(t, os.Rename(path+".away", path))
	tr.heals()
}

func refusedFile(t *testing.T) {
	tr, path := newTrialWithFile(t)
	check.OK(t, fleet.WriteFile(path, []byte("topics: [")))
	tr.schedule("0s")
	tr.finds("fleet configuration", "fail", "not valid YAML")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"configuration_refused"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"configuration_refused"}, Alerts: []string{"DuefleetConfigRefused"}})
	check.OK(t, fleet.WriteConfig(path, tr.settings.Document()))
	tr.heals()
}

// endingCertificate: scanners trust two authorities, and one ends in six days.
func endingCertificate(t *testing.T) {
	s := newSettings(t)
	secured, _ := servertest.OverTLSFor(t, s.RabbitMQURL, 30*24*time.Hour)
	u, err := url.Parse(secured)
	check.OK(t, err)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it only asks which certificate the server has
	check.OK(t, err)
	good := conn.ConnectionState().PeerCertificates[0].Raw
	check.OK(t, conn.Close())
	path := filepath.Join(t.TempDir(), "ca.pem")
	put := func(certificates ...[]byte) {
		t.Helper()
		var text []byte
		for _, der := range certificates {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
		}
		check.OK(t, fleet.WriteFile(path, text))
	}
	put(good)
	s.More = map[string]fleet.Topic{"rabbitmq": {"urls": []string{secured},
		"tls": map[string]any{"enabled": true, "ca_file": path}}}
	tr := newTrial(t, s)
	ending, _ := servertest.CertificateFor(t, 6*24*time.Hour)
	put(good, ending.Certificate[0])
	tr.restart() // scanners look once per minute, and when they start
	tr.schedule("0s")
	tr.says(tr.finds("fleet", "fail", "a certificate ends soon: "+path)["fleet"], "renew the certificate")
	tr.tell(verdicts{Status: problem.Degraded, Problems: []string{"certificate_expiring"}, Exit: 4, Doctor: 1,
		Ready: []int{200, 200}, Metrics: []string{"certificate_expiring"}, Alerts: []string{"DuefleetCertificateExpires"}})
	put(good)
	tr.restart()
	tr.heals()
}
