package telemetry

import (
	"reflect"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TopicMetrics counts for one topic; declare.go says what the tags mean. Its label values
// are resolved once, so that counting a task costs an atomic addition and no look-up. All
// fields and methods may be used concurrently.
type TopicMetrics struct {
	ForwardedTasks prometheus.Counter `metric:"forwarded_total" help:"Tasks that RabbitMQ confirmed and did not return."`
	Early          prometheus.Counter `metric:"early_total" help:"Tasks forwarded before they were due. Anything but 0 is a defect."`
	Redelivered    prometheus.Counter `metric:"redelivered_total" help:"Tasks forwarded although an earlier attempt may have reached RabbitMQ."`
	Returned       prometheus.Counter `metric:"returned_total" help:"Messages returned by RabbitMQ as unroutable."`
	Nacked         prometheus.Counter `metric:"nacked_total" help:"Messages refused by RabbitMQ."`
	Overdue        prometheus.Counter `metric:"overdue_total" help:"Messages that RabbitMQ did not answer in time, although it answered others."`
	Parked         prometheus.Counter `metric:"parked_total" help:"Tasks set aside after their last attempt."`
	Released       prometheus.Counter `metric:"released_total" help:"Tasks whose claim was given back."`
	Ticks          prometheus.Counter `metric:"ticks_total" help:"Ticks of this scanner."`
	EmptyTicks     prometheus.Counter `metric:"empty_ticks_total" help:"Ticks in which nothing was due."`
	Moved          prometheus.Counter `metric:"moved_tasks_total" help:"Tasks this scanner moved to their new shard."`

	IntakeTasks   *prometheus.CounterVec `metric:"intake_total" label:"verb" help:"Messages of the intake that were carried out, by verb: schedule, if-absent, cancel or move."`
	IntakeRefused *prometheus.CounterVec `metric:"intake_refused_total" label:"reason" help:"Messages of the intake that broke a rule and went to the exchange for refused messages. The reason is id, when, verb, payload, headers, route, loop or unreadable."`
	IntakeUnacked prometheus.Gauge       `metric:"intake_unacked" help:"Messages of the intake that this scanner has and has not acked."`

	ShardErrors *prometheus.CounterVec `metric:"shard_errors_total" label:"shard" help:"Errors that Redis returned for one shard, such as a key of the wrong type; its tasks stay where they are."`

	// The buckets begin at 0.5 ms, because a polled shard forwards within the millisecond
	// and a regression must show there. Steps of 1, 2, 3, 5 keep a quantile's error within
	// a factor of two. Each round objective up to 10 s is a bound. The three above
	// distinguish short and long outages from a shard that waits for its turn, at most
	// tick x M / workers.
	Lateness prometheus.Observer `metric:"lateness_seconds" buckets:".0005 .001 .002 .003 .005 .01 .02 .03 .05 .1 .2 .3 .5 1 2 3 5 10 30 60 300" help:"Confirm time minus due time of the tasks forwarded."`
	// The buckets reach from a queue in memory to a broker that is about to be given up.
	// The default lease of 30 s bounds the wait for a confirm.
	Confirm prometheus.Observer `metric:"publish_confirm_seconds" buckets:".0005 .001 .002 .005 .01 .02 .05 .1 .2 .5 1 2 5 10 30" help:"From a publish to RabbitMQ's confirm."`
	// The buckets begin at a round trip over loopback and end at a Redis client's
	// time-outs.
	Claim prometheus.Observer `metric:"claim_seconds" buckets:".0001 .0002 .0005 .001 .002 .005 .01 .02 .05 .1 .2 .5 1 2 5" help:"Round trip of a claim to Redis."`

	Shards        prometheus.Gauge `metric:"shards" help:"M, the topic's number of shards."`
	Epoch         prometheus.Gauge `metric:"placement_epoch" help:"Epoch of the placement this scanner uses."`
	Migrating     Switch           `metric:"migrating" help:"1 while tasks move to a new placement."`
	Misplaced     prometheus.Gauge `metric:"misplaced_tasks" help:"Tasks that a migration still has to move."`
	Orphans       prometheus.Gauge `metric:"orphaned_tasks" help:"Orphaned tasks: this scanner found them in shards that no scanner polls. The fleet recovers them."`
	MoveRate      prometheus.Gauge `metric:"move_rate_tasks_per_second" help:"Tasks that the whole fleet moves per second, averaged since the migration began."`
	MoveLeft      prometheus.Gauge `metric:"move_left_seconds" help:"How long the rest of the migration takes at move_rate_tasks_per_second; 0 if unknown."`
	Inflight      prometheus.Gauge `metric:"inflight_tasks" help:"Tasks this scanner has claimed and not settled; at most twice the window."`
	InflightBytes prometheus.Gauge `metric:"inflight_bytes" help:"Memory that this scanner holds for tasks whose outcome isn't known; in_flight_bytes limits the sum over all topics."`
	Workers       prometheus.Gauge `metric:"workers" help:"Claims that this scanner may have under way."`
	Paused        Switch           `metric:"paused" help:"1 while the topic is paused by its settings: tasks are accepted and wait."`
	Unreadable    prometheus.Gauge `metric:"unreadable_tasks" help:"Due tasks that this scanner left alone in the last minute. Their records are missing or in a newer format than it reads. Sum over scanners."`
	Retrying      prometheus.Gauge `metric:"retrying_tasks" help:"Tasks that this scanner retries because RabbitMQ returned or refused them, or did not answer in time; sum over scanners."`

	// RabbitMQ's answer to the topic's route, or that Redis refuses to serve the topic.
	Blocked map[string]prometheus.Gauge `metric:"topic_blocked" label:"reason" values:"not_found precondition_failed access_refused redis other" help:"1 while the topic can't be delivered: RabbitMQ refuses its exchange or declaration, or Redis refuses to serve it."`
	// Why the broker did not accept a message.
	RetryReason map[string]prometheus.Gauge `metric:"retry_reason" label:"reason" values:"returned refused overdue" help:"1 for the reason of the newest of retrying_tasks, while there are some: returned, refused or overdue."`

	placed     atomic.Int64           // M, from SetPlacement
	retrying   atomic.Int64           // from SetRetrying
	blocked    atomic.Pointer[string] // from SetBlocked
	shardLabel func(shard, shards int) string
}

// otherReason is the label of Blocked for reasons that have none of their own.
const otherReason = "other"

// Topic returns the handle of a topic and makes its series appear, at zero. Call it once
// and keep the handle: two handles of one topic count into the same series.
func (m *Metrics) Topic(name string) *TopicMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &TopicMetrics{shardLabel: m.shardLabel}
	resolve(reflect.ValueOf(t).Elem(), m.topics, prometheus.Labels{"topic": name})
	return t
}

// Forget removes a topic's series. Call it once the topic is gone and its workers have
// stopped: later counts of an old handle are not exported.
func (m *Metrics) Forget(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.topics {
		if v != nil {
			v.DeletePartialMatch(prometheus.Labels{"topic": topic})
		}
	}
}

// Forwarded counts a task that RabbitMQ confirmed and did not return. lateness is confirm
// minus due, by Redis's clock. Below zero the task was early, which breaks a promise. It
// then also counts as early, with a lateness of zero.
func (t *TopicMetrics) Forwarded(lateness time.Duration) {
	t.ForwardedTasks.Inc()
	if lateness < 0 {
		t.Early.Inc()
		lateness = 0
	}
	t.Lateness.Observe(lateness.Seconds())
}

// Tick counts a finished tick; an empty one found nothing due.
func (t *TopicMetrics) Tick(empty bool) {
	t.Ticks.Inc()
	if empty {
		t.EmptyTicks.Inc()
	}
}

// ShardError counts an error that Redis returned for one shard.
func (t *TopicMetrics) ShardError(shard int) {
	shards := max(int(t.placed.Load()), shard+1) // M may have become less
	t.ShardErrors.WithLabelValues(t.shardLabel(shard, shards)).Inc()
}

// SetPlacement records the placement this scanner uses: M, the epoch, and whether tasks
// are moving.
func (t *TopicMetrics) SetPlacement(shards int, epoch int64, migrating bool) {
	t.Shards.Set(float64(shards))
	t.Epoch.Set(float64(epoch))
	t.Migrating.Set(migrating)
	t.placed.Store(int64(shards))
	for at := range shards {
		t.ShardErrors.WithLabelValues(t.shardLabel(at, shards)) // start at 0, so that rate() sees the first error
	}
}

// SetProgress sets how many tasks a migration still has to move, the fleet's rate in tasks
// per second, and the time left at that rate. All are 0 without a migration.
func (t *TopicMetrics) SetProgress(misplaced int64, rate float64, left time.Duration) {
	t.Misplaced.Set(float64(misplaced))
	t.MoveRate.Set(rate)
	t.MoveLeft.Set(left.Seconds())
}

// SetInflight sets how many tasks this scanner has claimed and not settled. bytes is the
// memory of those without an outcome.
func (t *TopicMetrics) SetInflight(tasks, bytes int) {
	t.Inflight.Set(float64(tasks))
	t.InflightBytes.Set(float64(bytes))
}

// SetBlocked records why the topic can't be delivered. Reasons without a label of their
// own count as "other"; "" means that it can be delivered.
func (t *TopicMetrics) SetBlocked(reason string) {
	if before := t.blocked.Swap(&reason); before != nil && *before == reason {
		return // most topics of a scanner with many
	}
	if reason != "" && t.Blocked[reason] == nil {
		reason = otherReason
	}
	for r, g := range t.Blocked {
		g.Set(oneIf(r == reason))
	}
}

// SetRetrying sets how many tasks wait for another attempt or are in it. They are tasks
// that this scanner gave back because the broker did not accept them. reason is the
// newest one's, a label of RetryReason.
func (t *TopicMetrics) SetRetrying(n int64, reason string) {
	if before := t.retrying.Swap(n); before == 0 && n == 0 {
		return // most topics of a scanner with many
	}
	t.Retrying.Set(float64(n))
	for r, g := range t.RetryReason {
		g.Set(oneIf(n > 0 && r == reason))
	}
}
