package reshard

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// Metrics show the placement of one topic; telemetry.Set says what the tags mean.
type Metrics struct {
	Moved     prometheus.Counter `metric:"moved_tasks_total" help:"Tasks this scanner moved to their new shard."`
	Shards    prometheus.Gauge   `metric:"shards" help:"M, the topic's number of shards."`
	Epoch     prometheus.Gauge   `metric:"placement_epoch" together:"max" help:"Epoch of the placement this scanner uses."`
	Migrating telemetry.Switch   `metric:"migrating" help:"1 while tasks move to a new placement."`
	Misplaced prometheus.Gauge   `metric:"misplaced_tasks" help:"Tasks that a migration still has to move."`
	Orphans   prometheus.Gauge   `metric:"orphaned_tasks" together:"each" help:"Orphaned tasks: this scanner found them in shards that no scanner polls. The fleet recovers them."`
	MoveRate  prometheus.Gauge   `metric:"move_rate_tasks_per_second" help:"Tasks that the whole fleet moves per second, averaged since the migration began."`
	MoveLeft  prometheus.Gauge   `metric:"move_left_seconds" together:"max" help:"How long the rest of the migration takes at move_rate_tasks_per_second; 0 if unknown."`
}

// place shows the placement that this scanner uses.
func (m *Metrics) place(p shard.Placement) {
	m.Shards.Set(float64(p.Shards))
	m.Epoch.Set(float64(p.Epoch))
	m.Migrating.Set(p.Phase == shard.Migrating)
}

// progress sets how many tasks a migration still has to move, the fleet's rate in tasks
// per second, and the time left at that rate. All are 0 without a migration.
func (m *Metrics) progress(misplaced int64, rate float64, left time.Duration) {
	m.Misplaced.Set(float64(misplaced))
	m.MoveRate.Set(rate)
	m.MoveLeft.Set(left.Seconds())
}
