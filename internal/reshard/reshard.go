// Package reshard changes the number of shards of a topic, M, while the fleet delivers.
//
// Every scanner has a Resharder for each of its topics. There is no leader: each begins and
// ends changes by compare-and-set on the placement in Redis, and workers move the tasks.
package reshard

import (
	"context"
	"log/slog"
	"sync"
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
	// Changed fires at each document, at each placement that is learned, and when one was put
	// in force. The Resharder fires it, too.
	Changed *wake.Broadcast
	// Pace returns how often the placement is read, if nothing changes; usually Interval.
	Pace func() time.Duration
	// Step is shared by all topics.
	Step Step
	// Starts is shared by all topics. A Resharder holds one of it while it reads its first
	// placement.
	Starts *semaphore.Weighted
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

	// Only the chore uses these:
	started bool        // the first placement is known.
	seen    uint64      // how often Changed had fired when it last began
	next    *time.Timer // fires Changed at the topic's pace; nil at first.
	agreed  uint64      // the version of the document with whose count the placement last agreed
	sample  time.Time

	sweeps sync.Mutex // guards the next three.
	last   shard.Placement
	swept  time.Time // when it last looked for orphaned tasks under last.
	turn   bool      // it may look
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
// read before that. Then, and if the topic was removed, it reports that Changed must fire: the
// chore finds out.
func (r *Resharder) Learn(p shard.Placement) (open bool) {
	if p == (shard.Placement{}) {
		return r.view.learnRemoved()
	}
	return r.view.learnPlacement(p)
}
