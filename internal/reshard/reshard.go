// Package reshard changes the number of shards of a topic, M, while the fleet delivers.
//
// Every scanner has a Resharder for each of its topics. There is no leader: Run begins and
// ends changes by compare-and-set on the placement in Redis, and workers move the tasks.
package reshard

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// Config of a topic's Resharder. All fields are required.
type Config struct {
	Topic *shard.Topic
	// Moving is Topic with longer timeouts, for moving tasks.
	Moving *shard.Topic
	// InForce returns what the document in force says.
	InForce func() Document
	// Desired reads the shard count of the topic's document from its source, as it is
	// now. It returns 0 if there is no valid document.
	Desired func(ctx context.Context) (shards int, err error)
	// Shared means that all scanners have the same documents, from Consul.
	Shared bool
	// Live returns how many scanners of the fleet live, Workers how many workers this one
	// runs for the topic.
	Live, Workers func() int
	// Request returns a number that this process gives to no other claim or export.
	Request func() string
	// Changed fires at each document, and at each placement that is learned.
	Changed *wake.Broadcast
	// Placed wakes Run when a placement was put in force.
	Placed wake.Signal
	// Pace returns how often Run reads the placement, if nothing else makes it; usually
	// Interval.
	Pace func() time.Duration
	// Step is shared by all topics.
	Step Step
	// Starts is shared by all topics. Run holds one of it while it reads its first placement.
	Starts *semaphore.Weighted
	// Turns is shared by all topics. Run looks for orphaned tasks when it receives from
	// it.
	Turns <-chan struct{}
	// Report takes the outcome of calls.
	Report  Report
	Metrics *Metrics
	Log     *slog.Logger
	// Advice returns what to do about an error of Redis, to be appended to its text.
	Advice func(text string) string
}

// Document holds the settings of a topic's document that matter here.
type Document struct {
	Shards  int
	Version uint64 // counts the documents with another number of shards
	Tick    time.Duration
}

// Report takes the outcome of calls to Redis, for metrics, readiness and the log.
type Report interface {
	// Works notes that an operation in one shard succeeded, Fails that Redis refused it.
	Works(ctx context.Context, shard int, operation string)
	Fails(ctx context.Context, shard int, operation string, err error)
	// Placed notes M of a placement that is in force now.
	Placed(shards int)
	// Tried notes the outcome of an operation that belongs to no single shard, or that
	// Redis didn't answer. It reports whether a refusal begins or ends with it.
	Tried(operation string, err error) (news bool)
}

// Step lets only one mover of a scanner take a step at a time. So moving keeps no more
// than the tasks of one export in memory.
type Step chan struct{}

// NewStep returns a Step for all topics of a scanner.
func NewStep() Step { return make(Step, 1) }

// Resharder knows a topic's placement, changes it, and moves tasks to their new shards.
// It is safe for concurrent use.
type Resharder struct {
	cfg     Config
	view    *view
	exports exportLease
	stopped *ratelog.Logger

	// Only Run uses these:
	agreed uint64 // the version of the document with whose count the placement last agreed
	last   shard.Placement
	swept  time.Time // when it last swept under last
	turn   bool      // it may sweep
	sample time.Time
}

// New returns a Resharder and starts nothing.
func New(cfg Config) *Resharder {
	return &Resharder{
		cfg: cfg, stopped: ratelog.New(cfg.Log, slog.LevelWarn, "moving stopped for this tick"),
		view: &view{log: cfg.Log, metrics: cfg.Metrics, placed: cfg.Report.Placed, changed: cfg.Changed,
			shown: map[int]shard.Placement{}},
	}
}

// Known returns the placement and whether the topic was removed from Redis. The epoch is 0
// before a placement was read.
func (r *Resharder) Known() (p shard.Placement, removed bool) { return r.view.known() }

// Learn notes a placement that a draw read from Redis; the zero value means that Redis has none
// any more. It ignores a placement that is older than the known one, because most likely it was
// read before that. Then, and if the topic was removed, it reports that Run must find out.
func (r *Resharder) Learn(p shard.Placement) (open bool) {
	if p == (shard.Placement{}) {
		return r.view.learnRemoved()
	}
	return r.view.learnPlacement(p)
}
