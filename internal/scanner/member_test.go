package scanner

import (
	"log/slog"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/test/wait"
)

// An agent takes out a member whose check fails for long, or forgets it when it is
// set up anew.
func TestAMemberComesBackIntoTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	addr, prefix := stacktest.Consul(t)
	consul, err := config.NewConsul(config.Consul{Addr: addr, Prefix: prefix}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: addr})
	if err != nil {
		t.Fatal(err)
	}
	entries := func() (ids []string) {
		all, err := client.Agent().ServicesWithFilterOpts("", (&api.QueryOptions{}).WithContext(wait.Context(t)))
		if err != nil {
			t.Fatal(err)
		}
		for id, entry := range all {
			if entry.Meta["prefix"] == prefix {
				ids = append(ids, id)
			}
		}
		return ids
	}
	f.register = consul
	stop, ended := f.start("first", f.redis, f.broker, wait.Hang)
	wait.For(t, "the member to be in the catalog", func() bool { return len(entries()) == 1 })
	if err := client.Agent().ServiceDeregister(entries()[0]); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the member to be back", func() bool { return len(entries()) == 1 })
	stop()
	wait.Closed(t, "the scanner to end", ended)
	if left := entries(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
