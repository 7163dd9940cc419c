package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TopicMetrics counts for one topic. Its label values are resolved once, so
// that counting a task costs an atomic addition and no look-up. All methods
// may be called concurrently.
type TopicMetrics struct {
	forwarded, early, redelivered, returned, nacked prometheus.Counter
	parked, released, ticks, emptyTicks, moved      prometheus.Counter
	overdue                                         prometheus.Counter

	lateness, confirm, claim prometheus.Observer

	shardErrors *prometheus.CounterVec // by shard, of this topic
	shardLabel  func(shard, shards int) string
	placed      atomic.Int64 // M, as SetPlacement was told

	shards, epoch, migrating, misplaced, strays, moveRate, moveLeft, inflight, inflightBytes, workers, retrying, unreadable, paused prometheus.Gauge

	blocked     map[string]prometheus.Gauge // by reason
	retryReason map[string]prometheus.Gauge // by what became of the message
}

// blockReasons are the labels of topic_blocked: what RabbitMQ answered to the topic's
// route, or that Redis refuses to serve it.
func blockReasons() []string {
	return []string{"not_found", "precondition_failed", "access_refused", "redis", otherReason}
}

const otherReason = "other"

// retryReasons are the labels of retry_reason: what may become of a message that the
// broker does not take.
func retryReasons() []string { return []string{"returned", "refused", "overdue"} }

// Topic returns the handle of a topic and makes its series appear, at zero.
// Ask once and keep it: two handles of one topic count into the same series.
func (m *Metrics) Topic(name string) *TopicMetrics {
	v := m.topics
	v.mu.Lock()
	defer v.mu.Unlock()
	blocked := map[string]prometheus.Gauge{}
	for _, reason := range blockReasons() {
		blocked[reason] = v.blocked.WithLabelValues(name, reason)
	}
	retryReason := map[string]prometheus.Gauge{}
	for _, reason := range retryReasons() {
		retryReason[reason] = v.retryReason.WithLabelValues(name, reason)
	}
	return &TopicMetrics{
		blocked:       blocked,
		retryReason:   retryReason,
		forwarded:     v.forwarded.WithLabelValues(name),
		early:         v.early.WithLabelValues(name),
		redelivered:   v.redelivered.WithLabelValues(name),
		returned:      v.returned.WithLabelValues(name),
		nacked:        v.nacked.WithLabelValues(name),
		overdue:       v.overdue.WithLabelValues(name),
		parked:        v.parked.WithLabelValues(name),
		released:      v.released.WithLabelValues(name),
		ticks:         v.ticks.WithLabelValues(name),
		emptyTicks:    v.emptyTicks.WithLabelValues(name),
		moved:         v.moved.WithLabelValues(name),
		lateness:      v.lateness.WithLabelValues(name),
		confirm:       v.confirm.WithLabelValues(name),
		claim:         v.claim.WithLabelValues(name),
		shards:        v.shards.WithLabelValues(name),
		epoch:         v.epoch.WithLabelValues(name),
		migrating:     v.migrating.WithLabelValues(name),
		misplaced:     v.misplaced.WithLabelValues(name),
		strays:        v.strays.WithLabelValues(name),
		moveRate:      v.moveRate.WithLabelValues(name),
		moveLeft:      v.moveLeft.WithLabelValues(name),
		inflight:      v.inflight.WithLabelValues(name),
		inflightBytes: v.inflightBytes.WithLabelValues(name),
		workers:       v.workers.WithLabelValues(name),
		retrying:      v.retrying.WithLabelValues(name),
		paused:        v.paused.WithLabelValues(name),
		unreadable:    v.unreadable.WithLabelValues(name),
		shardErrors:   v.shardErrors.MustCurryWith(prometheus.Labels{"topic": name}),
		shardLabel:    m.shardLabel,
	}
}

// Forget takes a topic's series away, once the topic is gone and its workers
// have stopped: what an old handle counts after this is not exported.
func (m *Metrics) Forget(topic string) {
	m.topics.mu.Lock()
	defer m.topics.mu.Unlock()
	for _, v := range m.topics.vectors {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}

// Forwarded counts a task that RabbitMQ confirmed and did not return, and its
// lateness: confirm minus due, by Redis's clock. Below zero the task was early,
// which breaks a promise: it is counted by itself and as no lateness at all.
func (t *TopicMetrics) Forwarded(lateness time.Duration) {
	t.forwarded.Inc()
	if lateness < 0 {
		t.early.Inc()
		lateness = 0
	}
	t.lateness.Observe(lateness.Seconds())
}

// Confirmed observes how long RabbitMQ took to answer a publish, either way.
func (t *TopicMetrics) Confirmed(took time.Duration) { t.confirm.Observe(took.Seconds()) }

// Redelivered counts a task forwarded although an earlier attempt may have
// reached the broker.
func (t *TopicMetrics) Redelivered() { t.redelivered.Inc() }

// Returned counts a message that no queue was bound for.
func (t *TopicMetrics) Returned() { t.returned.Inc() }

// Nacked counts a message that the broker refused.
func (t *TopicMetrics) Nacked() { t.nacked.Inc() }

// Overdue counts a message that the broker did not answer for in time, though it
// did for others.
func (t *TopicMetrics) Overdue() { t.overdue.Inc() }

// Parked counts n tasks set aside after their last attempt.
func (t *TopicMetrics) Parked(n int) { t.parked.Add(float64(n)) }

// Released counts n tasks whose claim was given back.
func (t *TopicMetrics) Released(n int) { t.released.Add(float64(n)) }

// Tick counts a tick that is over; an empty one found nothing due.
func (t *TopicMetrics) Tick(empty bool) {
	t.ticks.Inc()
	if empty {
		t.emptyTicks.Inc()
	}
}

// Claimed observes how long a claim's round trip to Redis took.
func (t *TopicMetrics) Claimed(took time.Duration) { t.claim.Observe(took.Seconds()) }

// ShardError counts an error that Redis answered with for one shard.
func (t *TopicMetrics) ShardError(shard int) {
	shards := max(int(t.placed.Load()), shard+1) // M may be less by now
	t.shardErrors.WithLabelValues(t.shardLabel(shard, shards)).Inc()
}

// SetPlacement states the placement this scanner works by: M, the epoch, and
// whether tasks are on the move.
func (t *TopicMetrics) SetPlacement(shards int, epoch int64, migrating bool) {
	t.shards.Set(float64(shards))
	t.epoch.Set(float64(epoch))
	t.migrating.Set(oneIf(migrating))
	t.placed.Store(int64(shards))
	for at := range shards {
		t.shardErrors.WithLabelValues(t.shardLabel(at, shards)) // from 0 on, so that rate() sees the first error
	}
}

// Moved counts tasks moved to their new shard.
func (t *TopicMetrics) Moved(n int) { t.moved.Add(float64(n)) }

// SetProgress is how many tasks a migration has still to move, how many the
// fleet moves a second, and how long it will take yet at that rate; all 0 while
// none is under way.
func (t *TopicMetrics) SetProgress(misplaced int64, rate float64, left time.Duration) {
	t.misplaced.Set(float64(misplaced))
	t.moveRate.Set(rate)
	t.moveLeft.Set(left.Seconds())
}

// SetStrays is how many tasks lie in shards that nobody attends; 0 once they are
// being brought home.
func (t *TopicMetrics) SetStrays(n int64) { t.strays.Set(float64(n)) }

// SetInflight is how many tasks this scanner has claimed and not settled yet, and the
// bytes that those of them take whose outcome isn't known.
func (t *TopicMetrics) SetInflight(tasks, bytes int) {
	t.inflight.Set(float64(tasks))
	t.inflightBytes.Set(float64(bytes))
}

// SetBlocked names why the topic can't be delivered, as one of blockReasons or else as
// "other"; "" means that it can.
func (t *TopicMetrics) SetBlocked(reason string) {
	if reason != "" && t.blocked[reason] == nil {
		reason = otherReason
	}
	for r, g := range t.blocked {
		g.Set(oneIf(r == reason))
	}
}

// SetUnreadable is how many due tasks are left alone for their records.
func (t *TopicMetrics) SetUnreadable(n int64) { t.unreadable.Set(float64(n)) }

// SetRetrying is how many tasks that this scanner gave back wait for another attempt, or
// are at it, after the broker did not take them; and of the newest why, as one of
// retryReasons.
func (t *TopicMetrics) SetRetrying(n int64, reason string) {
	t.retrying.Set(float64(n))
	for r, g := range t.retryReason {
		g.Set(oneIf(n > 0 && r == reason))
	}
}

// SetPaused notes whether the topic is paused.
func (t *TopicMetrics) SetPaused(yes bool) { t.paused.Set(oneIf(yes)) }

// AddWorkers changes the number of workers this scanner runs for the topic.
func (t *TopicMetrics) AddWorkers(delta int) { t.workers.Add(float64(delta)) }

// topicVectors are the metrics labelled by topic. The lock keeps Topic and
// Forget apart: a handle is resolved whole or not at all.
type topicVectors struct {
	mu      sync.Mutex
	vectors []vector

	forwarded, early, redelivered, returned, nacked *prometheus.CounterVec
	parked, released, ticks, emptyTicks, moved      *prometheus.CounterVec
	overdue, shardErrors                            *prometheus.CounterVec

	lateness, confirm, claim *prometheus.HistogramVec

	shards, epoch, migrating, misplaced, strays, moveRate, moveLeft, inflight, inflightBytes, workers, retrying, unreadable, paused *prometheus.GaugeVec

	blocked, retryReason *prometheus.GaugeVec
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

func newTopicVectors() *topicVectors {
	v := &topicVectors{}
	v.forwarded = v.counter("forwarded_total", "Tasks that RabbitMQ confirmed and did not return.")
	v.early = v.counter("early_total", "Tasks forwarded before they were due. Anything but 0 is a defect.")
	v.redelivered = v.counter("redelivered_total", "Tasks forwarded although an earlier attempt may have reached the broker.")
	v.returned = v.counter("returned_total", "Messages returned by RabbitMQ as unroutable.")
	v.nacked = v.counter("nacked_total", "Messages refused by RabbitMQ.")
	v.overdue = v.counter("overdue_total", "Messages that RabbitMQ did not answer for in time, though it did for others.")
	v.parked = v.counter("parked_total", "Tasks set aside after their last attempt.")
	v.released = v.counter("released_total", "Tasks whose claim was given back.")
	v.ticks = v.counter("ticks_total", "Ticks that workers spent with a shard.")
	v.emptyTicks = v.counter("empty_ticks_total", "Ticks in which nothing was due.")
	v.moved = v.counter("moved_tasks_total", "Tasks this scanner moved to their new shard.")
	v.shardErrors = v.counter("shard_errors_total", "Errors that Redis answered with for one shard, such as a key of the wrong type: its tasks stay where they are.", "shard")
	v.lateness = v.histogram("lateness_seconds", "Confirm time minus due time of the tasks forwarded.", latenessBuckets())
	v.confirm = v.histogram("publish_confirm_seconds", "From a publish to RabbitMQ's confirm.", confirmBuckets())
	v.claim = v.histogram("claim_seconds", "Round trip of a claim to Redis.", claimBuckets())
	v.shards = v.gauge("shards", "M, the number of shards the topic is placed on.")
	v.epoch = v.gauge("placement_epoch", "Epoch of the placement this scanner works by.")
	v.migrating = v.gauge("migrating", "1 while tasks move to a new placement.")
	v.misplaced = v.gauge("misplaced_tasks", "Tasks a migration has still to move.")
	v.strays = v.gauge("stray_tasks", "Tasks this scanner found in shards that nobody attends; they are brought home.")
	v.moveRate = v.gauge("move_rate_tasks_per_second", "Tasks the whole fleet moves a second, on the average since the migration began.")
	v.moveLeft = v.gauge("move_left_seconds", "How long the migration will take yet at that rate; 0 if it can't be told.")
	v.inflight = v.gauge("inflight_tasks", "Tasks this scanner has claimed and not settled yet; twice the window is the most.")
	v.inflightBytes = v.gauge("inflight_bytes", "Memory that this scanner holds for tasks whose outcome isn't known; in_flight_bytes is the most of all topics.")
	v.workers = v.gauge("workers", "Workers this scanner runs.")
	v.paused = v.gauge("paused", "1 while the topic is paused by its settings: tasks are taken and wait.")
	v.blocked = v.gauge("topic_blocked", "1 while the topic can't be delivered: RabbitMQ refuses its exchange or declaration, or Redis to serve it.", "reason")
	v.retrying = v.gauge("retrying_tasks", "Tasks this scanner gave back for another attempt after RabbitMQ returned or refused them, or did not answer in time; sum over scanners.")
	v.unreadable = v.gauge("unreadable_tasks", "Due tasks that this scanner left alone in the last minute: their records are of a newer format than it reads, or missing; sum over scanners.")
	v.retryReason = v.gauge("retry_reason", "1 for why RabbitMQ did not take the newest of retrying_tasks, while there are some: it was returned, refused, or overdue.", "reason")
	return v
}

// latenessBuckets begin at 0.5 ms, because an attended shard forwards within
// the millisecond and a regression must show there; steps of 1, 2, 3, 5 keep a
// quantile's error within a factor of two and put a bound on every round
// objective up to 10 s. The three above tell a short outage from a long one,
// and a shard that waits for its turn (at most tick x M / workers) from both.
func latenessBuckets() []float64 {
	return []float64{
		.0005, .001, .002, .003, .005, .01, .02, .03, .05, .1, .2, .3, .5, 1, 2, 3, 5, 10,
		30, 60, 300,
	}
}

// confirmBuckets reach from a queue in memory to a broker about to be given up:
// no confirm is waited for longer than a default lease of 30 s.
func confirmBuckets() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}
}

// claimBuckets begin at a round trip over loopback and end where a Redis
// client's time-outs do.
func claimBuckets() []float64 {
	return []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}
}

func (v *topicVectors) counter(name, help string, labels ...string) *prometheus.CounterVec {
	labels = append([]string{"topic"}, labels...)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	v.vectors = append(v.vectors, c)
	return c
}

func (v *topicVectors) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	labels = append([]string{"topic"}, labels...)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	v.vectors = append(v.vectors, g)
	return g
}

func (v *topicVectors) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, []string{"topic"})
	v.vectors = append(v.vectors, h)
	return h
}
