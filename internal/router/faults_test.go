package router

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestEachStepOutlastsEachFault runs each operation once for each of its requests and each
// fault at that request. testdata/faults.txt has the requests that were sent, with the one
// that met the fault in brackets, and the result. An operation that succeeds has the same
// effect as without a fault. One that fails has that effect or none.
func TestEachStepOutlastsEachFault(t *testing.T) {
	t.Parallel()
	var rows []*faultRow
	for _, op := range faultOperations() {
		for _, phase := range []shard.Phase{shard.Stable, shard.Migrating} {
			plain := newFaultRow(t, op, phase, "", -1)
			plain.run(t.Context())
			rows = append(rows, plain)
			for at, step := range plain.sent {
				for _, fault := range faultsOf(step, phase) {
					row := newFaultRow(t, op, phase, fault, at)
					row.plain = plain
					rows = append(rows, row)
				}
			}
		}
	}
	var all sync.WaitGroup // most rows wait until a request whose reply was lost has expired
	for _, row := range rows {
		if row.plain != nil {
			all.Go(func() { row.run(t.Context()) })
		}
	}
	all.Wait()
	var table strings.Builder
	for _, row := range rows {
		row.check(t)
		fmt.Fprintln(&table, row)
	}
	// In a cluster each master is asked for the time on a connection of its own, which the
	// table doesn't show.
	if _, cluster := rows[0].rdb.(*redis.ClusterClient); !cluster {
		check.Golden(t, filepath.Join("testdata", "faults.txt"), table.String(),
			"go test ./internal/router -run "+t.Name()+" -update")
	}
}

// faultOperation is one operation on the task "there", which is stored, or on "absent".
type faultOperation struct {
	name string
	do   func(ctx context.Context, r *Router, row *faultRow) error
	// delivered: a consumer has had an earlier version of "there".
	delivered bool
}

func faultOperations() []faultOperation {
	one := func(id string, absent bool) func(context.Context, *Router, *faultRow) error {
		return func(ctx context.Context, r *Router, _ *faultRow) error {
			e := entry(id, task.In(2*time.Hour))
			e.IfAbsent = absent
			return r.Schedule(ctx, []shard.Entry{e})[0].Err
		}
	}
	cancel := func(ctx context.Context, r *Router, _ *faultRow) error { return r.Cancel(ctx, "there") }
	return []faultOperation{
		{name: "schedule", do: one("absent", false)},
		{name: "replace", do: one("there", false)},
		{name: "schedule if absent", do: one("absent", true)},
		{name: "cancel", do: cancel},
		{name: "cancel, delivered before", do: cancel, delivered: true},
		{name: "cancel many", do: func(ctx context.Context, r *Router, _ *faultRow) error {
			return errors.Join(r.CancelMany(ctx, []string{"there", "other"}, 100)...)
		}},
		{name: "reschedule", do: func(ctx context.Context, r *Router, _ *faultRow) error {
			_, err := r.Reschedule(ctx, "there", task.In(2*time.Hour))
			return err
		}},
		{name: "retime", do: func(ctx context.Context, r *Router, row *faultRow) error {
			return r.RetimeMany(ctx, []Retime{{ID: "there", When: task.In(2 * time.Hour), Op: row.own,
				Retiming: shard.Retiming{Seen: row.seen}}}, 100)[0].Err
		}},
		{name: "get", do: func(ctx context.Context, r *Router, _ *faultRow) error {
			_, err := r.Get(ctx, "there")
			return err
		}},
		{name: "get many", do: func(ctx context.Context, r *Router, _ *faultRow) error {
			got := r.GetMany(ctx, []string{"there", "other"})
			return errors.Join(got[0].Err, got[1].Err)
		}},
		{name: "requeue", do: func(ctx context.Context, r *Router, row *faultRow) error {
			_, err := r.Requeue(ctx, shard.Requeue{ID: "absent", Due: row.born - 1, Attempt: 1, Attempts: 1,
				Next: row.born + 2*time.Hour.Milliseconds(), Scheduled: row.born - 1, Body: body("payload of absent")})
			return err
		}},
	}
}

const (
	lostReply  = "reply lost"
	tooLate    = "late"
	changeHere = "change begins"
)

// faultsOf returns the faults that a request may meet. Only a script is late.
func faultsOf(step string, phase shard.Phase) []string {
	all := []string{lostReply}
	for _, script := range []string{"put", "delete", "reschedule", "retime", "requeue"} {
		if strings.Contains(step, script) {
			all = append(all, tooLate)
		}
	}
	if phase == shard.Stable {
		all = append(all, changeHere)
	}
	return all
}

// faultRow is one run of an operation.
type faultRow struct {
	*sandbox
	op     faultOperation
	phase  shard.Phase
	fault  string    // "": none
	at     int       // the request that meets it
	plain  *faultRow // the same operation without a fault; nil: this row is that
	names  map[string]string
	born   int64 // ms
	before string
	own    shard.Op
	seen   shard.Version // of task "there"

	mu     sync.Mutex
	sent   []string // by the operation
	result error
	failed error // of the fault itself
}

func newFaultRow(t *testing.T, op faultOperation, phase shard.Phase, fault string, at int) *faultRow {
	t.Helper()
	row := &faultRow{sandbox: newSandbox(t, 1), op: op, phase: phase, fault: fault, at: at, names: map[string]string{}}
	for _, name := range []string{"put", "delete", "reschedule", "retime", "requeue", "older", "fence", "read", "fetch",
		"note"} {
		text, err := shard.Script(name)
		check.OK(row.t, err)
		hash, err := row.rdb.ScriptLoad(t.Context(), text).Result()
		check.OK(row.t, err)
		row.names[hash] = name
	}
	row.put(task.In(time.Hour), "there", "other")
	there, err := row.Shard(0).Read(t.Context(), row.p, "there")
	check.OK(row.t, err)
	row.own, row.seen = shard.NewOp(), there.Version()
	if op.delivered {
		_, err := row.CheckDelivery(t.Context(), shard.Delivered{ID: "there", Due: 1, Scheduled: 1}, time.Hour)
		check.OK(row.t, err)
	}
	if phase == shard.Migrating {
		row.begin(50)
		check.Equal(t, "moving", row.p.Moving("there") && row.p.Moving("other") && row.p.Moving("absent"), true)
	}
	row.born = row.now()
	row.before = row.state()
	faults.Around(row.rdb, row.around)
	return row
}

// notCounted marks requests that are not the operation's.
type notCounted struct{}

func (row *faultRow) run(ctx context.Context) {
	row.result = row.op.do(ctx, row.Router("orders"), row)
}

// around notes the operation's requests, and gives one of them its fault.
func (row *faultRow) around(ctx context.Context, r faults.Request) error {
	step := row.step(r)
	if ctx.Value(notCounted{}) != nil || step == "" {
		return r.Send(ctx)
	}
	row.mu.Lock()
	now := len(row.sent) == row.at && row.fault != ""
	if now {
		step = "[" + step + "]"
	}
	row.sent = append(row.sent, step)
	row.mu.Unlock()
	if !now {
		return r.Send(ctx)
	}
	switch row.fault {
	case tooLate:
		for _, cmd := range r.Commands {
			row.miss(cmd)
		}
	case changeHere:
		_, row.failed = row.Begin(context.WithValue(ctx, notCounted{}, true), row.p, 50)
	}
	err := r.Send(ctx)
	if row.fault == lostReply {
		return r.Fail(faults.ErrLost)
	}
	return err
}

// step names a request by its commands; "": a connection begins with it.
func (row *faultRow) step(r faults.Request) string {
	var names []string
	for _, cmd := range r.Commands {
		name := cmd.Name()
		if strings.HasPrefix(name, "evalsha") {
			name = row.names[fmt.Sprint(cmd.Args()[1])]
		}
		if name != "hello" && name != "client" {
			names = append(names, name)
		}
	}
	return strings.Join(slices.Compact(names), "+")
}

// miss sets the deadline in a command to the year 1970.
func (row *faultRow) miss(cmd redis.Cmder) {
	for i, arg := range cmd.Args() {
		if ms, ok := arg.(int64); ok && ms > row.born && ms < row.born+time.Hour.Milliseconds() {
			cmd.Args()[i] = int64(1)
		}
	}
}

// state names the stored tasks, each with its due time in minutes from now, and the number
// of copies.
func (row *faultRow) state() string {
	row.t.Helper()
	ctx := context.WithValue(row.t.Context(), notCounted{}, true)
	var all []string
	for _, id := range []string{"there", "other", "absent"} {
		switch s, err := New(row.routers.store).Topic("orders").Get(ctx, id); {
		case errors.Is(err, task.ErrNotFound):
		case err != nil:
			check.OK(row.t, err)
		default:
			minutes := (s.Due.UnixMilli() - row.born + 30_000) / 60_000
			all = append(all, fmt.Sprintf("%s in %d min: %s", id, minutes, s.Payload))
		}
	}
	copies := int64(0)
	for at := range 50 {
		copies += row.rdb.ZCard(ctx, row.key("due", at)).Val()
	}
	return fmt.Sprint(strings.Join(all, ", "), ", copies: ", copies)
}

func (row *faultRow) check(t *testing.T) {
	t.Helper()
	check.OK(t, row.failed)
	if row.plain == nil {
		check.OK(t, row.result)
		return
	}
	state, planned := row.state(), row.plain.state()
	if state != planned && (row.result == nil || state != row.before) {
		t.Errorf("%s: stored is %q, before the call %q, without the fault %q", row, state, row.before, planned)
	}
}

// String is a line of the table. An operation that waits asks for the time until it has
// come, on a busy machine once more than otherwise. The line shows that once.
func (row *faultRow) String() string {
	sent := slices.CompactFunc(slices.Clone(row.sent), func(a, b string) bool { return a == "time" && a == b })
	result := "ok"
	for _, known := range []error{task.ErrUnavailable, task.ErrUncertain, task.ErrNotFound, task.ErrExists} {
		if errors.Is(row.result, known) {
			result = known.Error()
		}
	}
	if errors.Is(row.result, ErrRepeated) {
		result += ", sent again"
	}
	if row.result != nil && result == "ok" {
		result, _, _ = strings.Cut(row.result.Error(), "\n") // the first of several
	}
	name := fmt.Sprintf("%s, %s", row.op.name, row.phase)
	if row.fault != "" {
		name += ", " + row.fault
	}
	return fmt.Sprintf("%-45s %s: %s", name, strings.Join(sent, " "), result)
}
