package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

var (
	ledgerSeed   = flag.Uint64("seed", 0, "seed of the kills in TestLedger; 0 draws one")
	ledgerLength = flag.Duration("length", 0, "how long TestLedger kills parts under load; 0 kills each once")
)

// The words in the notes of the application and of the consumer.
const (
	committed = "committed"
	undone    = "undone"
	repeated  = "repeated"
)

// ledger is everything that happened in a run.
type ledger struct {
	committed, undone []string        // what the database confirmed to the application
	orders            map[string]bool // in the table
	effects           map[string]int  // in the table, by order
}

// broken returns the broken promises.
func (l ledger) broken() (wrong []string) {
	for _, id := range l.committed {
		if !l.orders[id] {
			wrong = append(wrong, id+": committed, and the database doesn't have it")
		}
	}
	for _, id := range l.undone {
		if l.orders[id] || l.effects[id] > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: rolled back, and has %d effects", id, l.effects[id]))
		}
	}
	for id := range l.orders {
		if n := l.effects[id]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: an order with %d effects", id, n))
		}
	}
	for id := range l.effects {
		if !l.orders[id] {
			wrong = append(wrong, id+": an effect without an order")
		}
	}
	return wrong
}

// TestTheLedgerFindsBrokenPromises: the check of the other tests can fail.
func TestTheLedgerFindsBrokenPromises(t *testing.T) {
	t.Parallel()
	all := func(id string) map[string]bool { return map[string]bool{id: true} }
	for name, row := range map[string]struct {
		ledger ledger
		broken int
	}{
		"all is well":         {ledger{[]string{"a"}, []string{"b"}, all("a"), map[string]int{"a": 1}}, 0},
		"a commit is lost":    {ledger{[]string{"a"}, nil, nil, nil}, 1},
		"an effect is lost":   {ledger{[]string{"a"}, nil, all("a"), nil}, 1},
		"an effect twice":     {ledger{nil, nil, all("a"), map[string]int{"a": 2}}, 1},
		"a rollback is there": {ledger{nil, []string{"a"}, all("a"), map[string]int{"a": 1}}, 1},
		"no order":            {ledger{nil, nil, nil, map[string]int{"a": 1}}, 1},
	} {
		check.Equal(t, name, len(row.ledger.broken()), row.broken)
	}
}

// run is a fleet whose parts are killed.
type run struct {
	t         *testing.T
	draw      *rand.Rand
	dir       string
	place     place
	db        *sql.DB
	database  database
	redis     *servers.Redis
	tasks     *fixture.Redis
	processes map[string]*fleet.Scanner // processes of this test binary
	starts    map[string]int            // of each process
	between   int                       // effects between two kills, at least
	kills     int
}

// database is a server that can be killed.
type database interface {
	Kill() error
	Restart(ctx context.Context) error
	Close(ctx context.Context) error
}

// startDatabase starts a server, and returns it with the URL of a database, or its DSN.
func startDatabase(t *testing.T, kind dbtest.Kind, args []string) (server database, url string) {
	t.Helper()
	if kind == dbtest.PostgreSQL {
		servertest.Need(t, "postgres", "initdb", "pg_isready")
		postgres, err := servers.StartPostgres(t.Context(), args...)
		check.OK(t, err)
		return postgres, postgres.URL()
	}
	servertest.Need(t, "mariadbd", "mariadb-install-db", "mariadb-admin")
	mariadb, err := servers.StartMariaDB(t.Context(), args...)
	check.OK(t, err)
	dbtest.Exec(t, dbtest.Open(t, mariadb.DSN("")), `CREATE DATABASE ledger`)
	return mariadb, mariadb.DSN("ledger")
}

// newRun starts the servers and the processes. Redis syncs each write, so it keeps what it
// acknowledged. args are arguments of the database's server.
func newRun(t *testing.T, kind dbtest.Kind, rate, between int, args ...string) *run {
	t.Helper()
	seed := *ledgerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("the kills: -run '^%s$' -seed %d", t.Name(), seed)
	r := &run{t: t, draw: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), between: between, //nolint:gosec // must be repeatable
		processes: map[string]*fleet.Scanner{}, starts: map[string]int{},
		redis: servertest.OwnRedis(t, "--appendfsync", "always")}
	var url string
	r.database, url = startDatabase(t, kind, args)
	t.Cleanup(func() { _ = r.database.Close(context.Background()) })
	r.tasks = fixture.At(t, r.redis.Addr(), "ledger")
	r.place = place{kind, url, servertest.RabbitMQ(t), r.redis.Addr(), "ledger"}
	r.db = dbtest.Open(t, r.place.Database)
	check.OK(t, dialect(kind).Migrate(t.Context(), r.db))
	number := map[dbtest.Kind]string{dbtest.PostgreSQL: "bigserial", dbtest.MariaDB: "bigint AUTO_INCREMENT"}[kind]
	dbtest.Exec(t, r.db, `CREATE TABLE orders (id varchar(64) PRIMARY KEY)`)
	dbtest.Exec(t, r.db, `CREATE TABLE effects (n `+number+` PRIMARY KEY, id varchar(64), step varchar(9))`)
	config := r.place.config(t, r.dir, fleet.Topic{"lease": "3s"})
	for _, name := range []string{"scanner", "consumer", "relay", "relay-2", "application"} {
		r.start(name, role{Place: r.place, Config: config, Rate: rate, Notes: filepath.Join(r.dir, name+".notes")})
		if name == "scanner" {
			check.Until(t, "the topic is served", func() bool {
				_, err := r.tasks.Orders().Placement(t.Context())
				return err == nil
			})
		}
	}
	return r
}

// start starts a process. Its role is the part of the name before the hyphen.
func (r *run) start(name string, part role) {
	r.t.Helper()
	part.Name, _, _ = strings.Cut(name, "-")
	text, err := json.Marshal(part)
	check.OK(r.t, err)
	self, err := os.Executable()
	check.OK(r.t, err)
	r.processes[name], err = fleet.StartScanner(r.t.Context(), fleet.ScannerConfig{
		Binary: self, Config: part.Config, Dir: r.dir, Name: name, Unready: true, Env: []string{roleEnv + "=" + string(text)},
	})
	check.OK(r.t, err)
	r.t.Cleanup(func() {
		if check.OK(r.t, r.processes[name].Kill()); r.t.Failed() {
			r.t.Logf("the end of its log, %s:\n%s", name, servers.Tail(r.processes[name].Log()))
		}
	})
	r.begins(name)
}

// begins waits until a process that was started handles SIGTERM.
func (r *run) begins(name string) {
	r.t.Helper()
	r.starts[name]++
	check.Count(r.t, "starts of "+name, r.starts[name], func() int {
		log, err := os.ReadFile(r.processes[name].Log())
		check.OK(r.t, err)
		return bytes.Count(log, []byte(begun))
	})
}

// killAll kills each part once, in a drawn order. A part is down for a drawn time. Then the
// next one waits until tasks have taken effect.
func (r *run) killAll() {
	r.t.Helper()
	victims := []string{"application", "relay", "relay-2", "scanner", "consumer", "database", "redis"}
	for _, i := range r.draw.Perm(len(victims)) {
		r.progress()
		r.kill(victims[i], time.Duration(r.draw.IntN(500))*time.Millisecond)
	}
	r.progress()
}

func (r *run) kill(victim string, down time.Duration) {
	r.t.Helper()
	kill, start := r.redis.Kill, r.redis.Restart
	switch victim {
	case "redis":
	case "database":
		kill, start = r.database.Kill, r.database.Restart
		r.db.SetMaxIdleConns(0) // a connection that is kept would be a dead one
		defer r.db.SetMaxIdleConns(1)
	default:
		kill, start = r.processes[victim].Kill, r.processes[victim].Start
	}
	check.OK(r.t, kill())
	r.kills++
	select {
	case <-r.t.Context().Done():
	case <-time.After(down):
	}
	var err error
	check.Until(r.t, "the start of "+victim, func() bool { // a database refuses while a child of the last one is there
		err = start(r.t.Context())
		return err == nil
	})
	if r.processes[victim] != nil {
		r.begins(victim)
	}
}

// progress waits until more tasks have taken effect.
func (r *run) progress() {
	r.t.Helper()
	begun := r.effects()
	check.Count(r.t, "effects", begun+r.between, r.effects)
}

// effects returns about how many effects there were. It is quick.
func (r *run) effects() int {
	return dbtest.Value[int](r.t, r.db, `SELECT coalesce(max(n), 0) FROM effects`)
}

// drain ends each part when it has nothing left to do.
func (r *run) drain() {
	r.t.Helper()
	r.stop("application")
	check.Progress(r.t, "an empty outbox", r.effects, func() bool {
		return dbtest.Value[int](r.t, r.db, `SELECT count(*) FROM duefleet_outbox`) == 0
	})
	r.stop("relay")
	r.stop("relay-2")
	channel := servertest.Channel(r.t, r.place.RabbitMQ)
	idle := func() bool { // a message that the consumer has counts nowhere, so ask after its end, too
		status, err := member.Status(r.t.Context(), r.tasks.Client, r.place.Prefix)
		check.OK(r.t, err)
		q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		check.OK(r.t, err)
		topic := status.Topic(orders)
		return topic.Pending+topic.Parked == 0 && q.Messages == 0
	}
	for {
		check.Progress(r.t, "no task and no message", r.effects, idle)
		r.stop("consumer")
		if idle() {
			break
		}
		check.OK(r.t, r.processes["consumer"].Start(r.t.Context()))
		r.begins("consumer")
	}
	r.stop("scanner")
}

func (r *run) stop(name string) {
	r.t.Helper()
	check.OK(r.t, fleet.StopAll(check.Context(r.t), []*fleet.Scanner{r.processes[name]}))
}

// verdict drains the fleet and checks the ledger.
func (r *run) verdict() {
	r.t.Helper()
	r.drain()
	notes := r.read("application", "consumer")
	l := ledger{committed: notes[committed], undone: notes[undone], orders: map[string]bool{}, effects: map[string]int{}}
	for table, add := range map[string]func(id string){
		"orders": func(id string) { l.orders[id] = true }, "effects": func(id string) { l.effects[id]++ },
	} {
		for _, id := range r.ids(table) {
			add(id)
		}
	}
	r.t.Logf("%d kills; %d orders, %d of them confirmed, %d rolled back; %d effects; %d repeats found their mark",
		r.kills, len(l.orders), len(l.committed), len(l.undone), len(l.effects), len(notes[repeated]))
	for i, wrong := range l.broken() {
		if i < 10 {
			r.t.Error(wrong)
		}
	}
	if len(l.committed) == 0 || len(l.undone) == 0 {
		r.t.Error("the load checked too little")
	}
}

// ids returns the IDs in a table.
func (r *run) ids(table string) (all []string) {
	r.t.Helper()
	rows, err := r.db.QueryContext(r.t.Context(), `SELECT id FROM `+table)
	check.OK(r.t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		check.OK(r.t, rows.Scan(&id))
		all = append(all, id)
	}
	check.OK(r.t, rows.Err())
	return all
}

// read returns the IDs in the notes of processes, by word.
func (r *run) read(names ...string) map[string][]string {
	r.t.Helper()
	notes := map[string][]string{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.dir, name+".notes"))
		check.OK(r.t, err)
		for line := range bytes.Lines(content) {
			if word, id, found := strings.Cut(strings.TrimSpace(string(line)), " "); found {
				notes[word] = append(notes[word], id)
			}
		}
	}
	return notes
}

// TestLedger kills each part once, or again and again for -length. The database syncs each
// commit. Each order that was committed has one effect, and no other order has one.
func TestLedger(t *testing.T) {
	t.Parallel()
	rate, between := 100, 20
	if *ledgerLength > 0 {
		rate, between = 500, 500
	}
	syncs := map[dbtest.Kind][]string{
		dbtest.PostgreSQL: {"-c", "fsync=on"}, dbtest.MariaDB: {"--innodb-flush-log-at-trx-commit=1"},
	}
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		r := newRun(t, kind, rate, between, syncs[kind]...)
		begun := time.Now()
		r.killAll()
		for time.Since(begun) < *ledgerLength {
			r.killAll()
		}
		r.verdict()
		if *ledgerLength > 0 && len(r.read("consumer")[repeated]) == 0 {
			t.Error("no repeat checked the inbox")
		}
	})
}
