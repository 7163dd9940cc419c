package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// now is the current time in the tables.
var now = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

var documents = []config.Document{
	{Name: "orders", Topic: config.Topic{Shards: 16, Exchange: "orders", RoutingKey: "order.due"}, Index: 1234},
	{Name: "mails.eu", Topic: config.Topic{Shards: 1, Exchange: "mail", Paused: true}, Index: 9},
	{Name: "broken", Err: errors.New("broken:2: shards: must be 1 to 4096; got 5000\nbroken:3: unknown key")},
}

var parkedTasks = []shard.Record{
	parkedRecord("o-1", 1796119200000, 10, "returned: 312 NO_ROUTE"),
	parkedRecord("o 2", 1796119201500, 1, "handler failed"),
	damaged,
}

// parkedRecord returns the record of a task that was parked a minute before now.
func parkedRecord(id string, due int64, attempt int, reason string) shard.Record {
	r := shard.Record{Reason: reason, ReasonAt: now.Add(-time.Minute)}
	r.Topic, r.ID, r.Due, r.Attempt, r.PayloadBytes = "orders", id, time.UnixMilli(due), attempt, 200
	r.FirstDue = r.Due.Add(-time.Duration(attempt-1) * time.Hour)
	return r
}

// damaged returns the result of reading a truncated record.
var damaged = shard.Record{
	Task:   task.Task{Topic: "orders", ID: "a long ID\twith a \x1b[31mtab"},
	Reason: "record: too short\nfor its head",
}

// listedTasks are a task in each state, with IDs of every kind, and an unreadable one.
var listedTasks = []admin.Listed{
	listedAs("o-1", task.Waiting, 36*time.Hour, 36*time.Hour, ""),
	listedAs("customer:17/ä", task.Leased, -time.Second, 29*time.Second, ""),
	listedAs("a b\t\x1b[31m", admin.Retrying, -time.Minute, 4*time.Second, "returned: 312 NO_ROUTE\n"),
	{Stored: shard.Stored{Record: damaged, State: task.Parked}},
}

// recurringTasks are tasks without a rule next to recurring ones: with each kind of rule, moved,
// overdue, and at its last run.
var recurringTasks = []admin.Listed{
	listedAs("o-1", task.Waiting, 36*time.Hour, 36*time.Hour, ""),
	recurringAs("daily", time.Hour, task.Recurrence{Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Runs: 3, Each: true}),
	recurringAs("moved", time.Hour, task.Recurrence{Every: 90 * time.Minute, Planned: now.Add(2 * time.Hour)}),
	recurringAs("overdue", -5*time.Hour, task.Recurrence{Every: time.Hour, Until: now.Add(90 * time.Minute)}),
	recurringAs("last one", time.Minute, task.Recurrence{Every: time.Hour, Runs: 1}),
	listedAs("customer:17/ä", task.Leased, -time.Second, 29*time.Second, ""),
}

func recurringAs(id string, due time.Duration, r task.Recurrence) admin.Listed {
	l := listedAs(id, task.Waiting, due, due, "")
	l.Recurrence = &r
	return l
}

// listedAs returns a task; due and next are relative to now.
func listedAs(id string, state task.State, due, next time.Duration, reason string) admin.Listed {
	s := shard.Stored{State: state, Next: now.Add(next)}
	s.ID, s.Due, s.Attempt, s.Reason = id, now.Add(due), 1+len(reason)/10, reason
	return admin.Listed{Stored: s}
}

// visited returns a function that visits the given values.
func visited[T any](all []T) each[T] {
	return func(yield func(T) bool) error {
		slices.Values(all)(yield)
		return nil
	}
}

// TestTables compares the tables for people with testdata.
func TestTables(t *testing.T) {
	t.Parallel()
	findings := []doctor.Finding{
		{Check: "config", State: doctor.OK, What: "the configuration is good"},
		{Check: "redis", State: doctor.Fail, What: "maxmemory-policy is allkeys-lru:\ntasks are evicted",
			Fix: "redis-cli CONFIG SET maxmemory-policy noeviction"},
	}
	for name, draw := range map[string]func(io.Writer) error{
		"topics":     func(w io.Writer) error { return printTopics(w, documents) },
		"tasks":      func(w io.Writer) error { return printTasks(w, visited(listedTasks), now) },
		"recurring":  func(w io.Writer) error { return printTasks(w, visited(recurringTasks), now) },
		"tasks_none": func(w io.Writer) error { return printTasks(w, visited[admin.Listed](nil), now) },
		"parked":     func(w io.Writer) error { return printParked(w, visited(parkedTasks), "nothing is parked\n", now) },
		"parked_empty": func(w io.Writer) error {
			return printParked(w, visited[shard.Record](nil), "nothing is parked\n",
				now)
		},
		"doctor": func(w io.Writer) error { return printFindings(w, findings, cli.Table) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := draw(&got); err != nil {
				t.Fatal(err)
			}
			isGolden(t, name, got.String())
		})
	}
}

// isGolden compares printed output with a file of testdata.
func isGolden(t *testing.T, name, got string) {
	t.Helper()
	check.Golden(t, filepath.Join("testdata", name+".txt"), got,
		"go test ./cmd/scanner -run "+t.Name()+" -update")
}

// golden compares the output of a successful verb with a file of testdata.
func (o *operator) golden(name string, args ...string) {
	o.t.Helper()
	code, text := o.call(args...)
	if code != cli.Done {
		o.t.Errorf("scanner %s: code %d, %q", strings.Join(args, " "), code, text)
	}
	isGolden(o.t, name, text)
}
