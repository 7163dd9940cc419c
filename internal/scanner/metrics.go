package scanner

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/documents"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/selfcheck"
	"github.com/duefleet/duefleet/internal/settle"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// Metrics are all metrics of a scanner.
type Metrics struct {
	*ownMetrics
	set       telemetry.Set
	errors    *telemetry.Errors
	documents *documents.Metrics
	checks    *selfcheck.Metrics
	series    int // a topic with more shards has one series for all of them
	topics    func(name string) *topicMetrics
	moves     func(topic string) *reshard.Metrics
	settled   func(topic string) *settle.Metrics
	intakes   func(topic string) *intake.Metrics
}

// NewMetrics registers the metrics of a scanner with reg. If one of the names is taken, it
// registers none and returns the error. A topic with more than admin.ShardSeries shards has one
// series for all shards, labelled shard="all", in place of one for each. If there are more than
// admin.TopicSeries topics, they are shown together, labelled topic="all".
func NewMetrics(reg prometheus.Registerer, admin config.Admin, build telemetry.Build) (*Metrics, error) {
	m := &Metrics{series: admin.ShardSeries, set: telemetry.Set{MostTopics: admin.TopicSeries}}
	m.ownMetrics, m.errors = telemetry.Declare[ownMetrics](&m.set), telemetry.Declare[telemetry.Errors](&m.set)
	m.documents, m.checks = telemetry.Declare[documents.Metrics](&m.set), telemetry.Declare[selfcheck.Metrics](&m.set)
	m.topics = telemetry.DeclareForTopics[topicMetrics](&m.set)
	m.moves = telemetry.DeclareForTopics[reshard.Metrics](&m.set)
	m.settled = telemetry.DeclareForTopics[settle.Metrics](&m.set)
	m.intakes = telemetry.DeclareForTopics[intake.Metrics](&m.set)
	m.set.AddBuild(build)
	return m, m.set.Register(reg)
}

// topic returns the metrics of a topic, and makes their series appear.
func (m *Metrics) topic(name string) *topicMetrics {
	t := m.topics(name)
	t.series, t.moves, t.settled, t.intake = m.series, m.moves(name), m.settled(name), m.intakes(name)
	return t
}

// ownMetrics count for a scanner; telemetry.Set says what the tags mean.
type ownMetrics struct {
	RabbitMQConnected telemetry.Switch `metric:"rabbitmq_connected" help:"1 while the connections to RabbitMQ for due tasks are open. There is one for each 1,500 topics."`
	RabbitMQBlocked   telemetry.Switch `metric:"rabbitmq_blocked" help:"1 while RabbitMQ blocks publishers (memory or disk alarm)."`
	RedisUp           telemetry.Switch `metric:"redis_up" help:"1 while Redis answers."`
	LiveScanners      prometheus.Gauge `metric:"live_scanners" help:"Members of the fleet with a fresh heartbeat, this one included."`
}

// topicMetrics count for one topic; telemetry.Set says what the tags mean.
type topicMetrics struct {
	ForwardedTasks prometheus.Counter `metric:"forwarded_total" help:"Tasks that RabbitMQ confirmed and did not return."`
	Early          prometheus.Counter `metric:"early_total" help:"Tasks forwarded before they were due. Anything but 0 is a defect."`
	Redelivered    prometheus.Counter `metric:"redelivered_total" help:"Tasks forwarded although an earlier attempt may have reached RabbitMQ."`
	Returned       prometheus.Counter `metric:"returned_total" help:"Messages returned by RabbitMQ as unroutable."`
	Nacked         prometheus.Counter `metric:"nacked_total" help:"Messages refused by RabbitMQ."`
	Overdue        prometheus.Counter `metric:"overdue_total" help:"Messages that RabbitMQ did not answer in time, although it answered others."`
	Parked         prometheus.Counter `metric:"parked_total" help:"Tasks set aside after their last attempt."`
	Ticks          prometheus.Counter `metric:"ticks_total" help:"Ticks of this scanner."`
	EmptyTicks     prometheus.Counter `metric:"empty_ticks_total" help:"Ticks in which nothing was due."`

	ShardErrors *telemetry.Counters `metric:"shard_errors_total" label:"shard" help:"Errors that Redis returned for one shard, such as a key of the wrong type; its tasks stay where they are."`

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

	Inflight      prometheus.Gauge `metric:"inflight_tasks" help:"Tasks this scanner has claimed and not settled; at most twice the window."`
	InflightBytes prometheus.Gauge `metric:"inflight_bytes" help:"Memory that this scanner holds for tasks whose outcome isn't known; in_flight_bytes limits the sum over all topics."`
	Workers       prometheus.Gauge `metric:"workers" help:"Claims that this scanner may have under way."`
	Paused        telemetry.Switch `metric:"paused" together:"each" help:"1 while the topic is paused by its settings: tasks are accepted and wait."`
	Unreadable    prometheus.Gauge `metric:"unreadable_tasks" together:"each" help:"Due tasks that this scanner left alone in the last minute. Their records are missing or in a newer format than it reads. Sum over scanners."`
	Retrying      prometheus.Gauge `metric:"retrying_tasks" together:"each" help:"Tasks that this scanner retries because RabbitMQ returned or refused them, or did not answer in time; sum over scanners."`

	// RabbitMQ's answer to the topic's route, or that Redis refuses to serve the topic.
	Blocked map[string]telemetry.Switch `metric:"topic_blocked" together:"each" label:"reason" values:"not_found precondition_failed access_refused redis other" help:"1 while the topic can't be delivered: RabbitMQ refuses its exchange or declaration, or Redis refuses to serve it."`
	// Why the broker did not accept a message.
	RetryReason map[string]telemetry.Switch `metric:"retry_reason" together:"each" label:"reason" values:"returned refused overdue" help:"1 for the reason of the newest of retrying_tasks, while there are some: returned, refused or overdue."`

	moves    *reshard.Metrics
	settled  *settle.Metrics
	intake   *intake.Metrics
	series   int
	shards   atomic.Int64           // M, from placed
	retrying atomic.Int64           // from setRetrying
	blocked  atomic.Pointer[string] // from setBlocked
}

// otherReason is the label of Blocked for reasons that have none of their own.
const otherReason = "other"

// placed takes M, so that the series of each shard begins at 0 and rate() sees the first error.
func (t *topicMetrics) placed(shards int) {
	t.shards.Store(int64(shards))
	for at := range shards {
		t.ShardErrors.WithLabelValues(telemetry.ShardLabel(at, shards, t.series))
	}
}

// forwarded counts a task that RabbitMQ confirmed and did not return. lateness is confirm
// minus due, by Redis's clock. Below zero the task was early, which breaks a promise. It
// then also counts as early, with a lateness of zero.
func (t *topicMetrics) forwarded(lateness time.Duration) {
	t.ForwardedTasks.Inc()
	if lateness < 0 {
		t.Early.Inc()
		lateness = 0
	}
	t.Lateness.Observe(lateness.Seconds())
}

// tick counts a finished tick; an empty one found nothing due.
func (t *topicMetrics) tick(empty bool) {
	t.Ticks.Inc()
	if empty {
		t.EmptyTicks.Inc()
	}
}

// shardError counts an error that Redis returned for one shard.
func (t *topicMetrics) shardError(shard int) {
	shards := max(int(t.shards.Load()), shard+1) // M may have become less
	t.ShardErrors.WithLabelValues(telemetry.ShardLabel(shard, shards, t.series)).Inc()
}

// setInflight sets how many tasks this scanner has claimed and not settled. bytes is the
// memory of those without an outcome.
func (t *topicMetrics) setInflight(tasks, bytes int) {
	t.Inflight.Set(float64(tasks))
	t.InflightBytes.Set(float64(bytes))
}

// setBlocked records why the topic can't be delivered. Reasons without a label of their
// own count as "other"; "" means that it can be delivered.
func (t *topicMetrics) setBlocked(reason string) {
	if before := t.blocked.Swap(&reason); before != nil && *before == reason {
		return // most topics of a scanner with many
	}
	if _, known := t.Blocked[reason]; reason != "" && !known {
		reason = otherReason
	}
	for r, g := range t.Blocked {
		g.Set(r == reason)
	}
}

// setRetrying sets how many tasks wait for another attempt or are in it. They are tasks
// that this scanner gave back because the broker did not accept them. reason is the
// newest one's, a label of RetryReason.
func (t *topicMetrics) setRetrying(n int64, reason string) {
	if before := t.retrying.Swap(n); before == 0 && n == 0 {
		return // most topics of a scanner with many
	}
	t.Retrying.Set(float64(n))
	for r, g := range t.RetryReason {
		g.Set(n > 0 && r == reason)
	}
}
