package scanner

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAnotherAtAScannersAddressIsNotReadyForIt: the check of a killed scanner fails,
// although another one at its address is ready.
func TestAnotherAtAScannersAddressIsNotReadyForIt(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	check.Until(t, "the scanner to be ready", func() bool {
		status, _ := l.ask("/readyz")
		return status == http.StatusOK
	})
	if status, body := l.ask("/readyz?format=json&instance=lone"); status != http.StatusOK ||
		!strings.Contains(body, `"instance":"lone"`) {
		t.Errorf("asked for itself it is %d: %s", status, body)
	}
	addr, prefix := servertest.Consul(t)
	client, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(l.t, err)
	anyone := fixture.Consul(l.t, addr)
	for instance, want := range map[string]string{"lone": api.HealthPassing, "killed & gone": api.HealthCritical} {
		check.OK(l.t, client.Register(t.Context(), instance, l.admin.Addr()))
		check.Until(t, "the check of "+instance+" to be "+want, func() bool {
			status, info, err := anyone.Agent().AgentHealthServiceByID(consul.ServiceName + "-" + l.admin.Addr())
			check.OK(l.t, err)
			said := len(info.Checks) == 1 && strings.Contains(info.Checks[0].Output, "instance: down (required): this is lone")
			return status == want && said == (want == api.HealthCritical)
		})
		check.OK(l.t, client.Deregister(t.Context(), l.admin.Addr()))
	}
}

// An agent removes a member whose check fails for long, and forgets it when the agent is
// set up again.
func TestAMemberComesBackIntoTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	addr, prefix := servertest.Consul(t)
	register, err := consul.New(consul.Config{Addr: addr, Prefix: prefix, Log: slog.New(slog.DiscardHandler)})
	check.OK(t, err)
	client := fixture.Consul(t, addr)
	entries := func() (ids []string) {
		all, err := client.Agent().ServicesWithFilterOpts("", (&api.QueryOptions{}).WithContext(check.Context(t)))
		check.OK(t, err)
		for id, entry := range all {
			if entry.Meta["prefix"] == prefix {
				ids = append(ids, id)
			}
		}
		return ids
	}
	f.register = register
	stop, ended := f.start("first", f.redis, f.broker, check.Hang)
	check.Until(t, "the member to be in the catalog", func() bool { return len(entries()) == 1 })
	check.OK(t, client.Agent().ServiceDeregister(entries()[0]))
	check.Until(t, "the member to be back", func() bool { return len(entries()) == 1 })
	stop()
	check.Closed(t, "the scanner to end", ended)
	if left := entries(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
