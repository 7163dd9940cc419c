package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestPython: each program places two orders and pays the first. Its third payment is rolled
// back, so the task of that order stays.
func TestPython(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]struct {
		kind            dbtest.Kind
		module, program string
	}{
		"PostgreSQL": {dbtest.PostgreSQL, "psycopg2", "../../../examples/python/outbox.py"},
		"MariaDB":    {dbtest.MariaDB, "pymysql", "testdata/mariadb.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter := servertest.Python(t, program.module)
			url, client, admin, end := relay(t, program.kind, fixture.New(t))
			_, err := client.Schedule(t.Context(),
				producer.Request{Topic: "orders", ID: "order-3", When: producer.In(time.Hour)})
			check.OK(t, err)
			cmd := exec.CommandContext(check.Context(t), interpreter, program.program)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+asURL(url))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			check.Equal(t, "what it prints", string(out), "rolled back: no order order-3\n")
			db := dbtest.Open(t, url)
			check.Until(t, "an empty outbox", func() bool {
				return dbtest.Value[int](t, db, `SELECT count(*) FROM duefleet_outbox`) == 0
			})
			_, metrics := get(t, admin, "/metrics")
			for _, want := range []string{`stored_total{action="schedule"} 2`, `stored_total{action="cancel"} 1`} {
				check.Equal(t, want, strings.Contains(metrics, "duefleet_outbox_"+want+"\n"), true)
			}
			_, err = client.Get(t.Context(), "orders", "order-1")
			check.Equal(t, "the paid order has no task", errors.Is(err, task.ErrNotFound), true)
			stored, err := client.Get(t.Context(), "orders", "order-2")
			check.OK(t, err)
			check.Equal(t, "the payload", string(stored.Payload), `{"id":"order-2"}`)
			_, err = client.Get(t.Context(), "orders", "order-3")
			check.OK(t, err)
			end()
		})
	}
}
