package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TopicMetrics counts for one topic. It resolves its label values once, so that counting
// a task costs an atomic addition and no look-up. All methods may be called concurrently.
type TopicMetrics struct {
	forwarded, early, redelivered, returned, nacked prometheus.Counter
	parked, released, ticks, emptyTicks, moved      prometheus.Counter
	overdue                                         prometheus.Counter

	lateness, confirm, claim prometheus.Observer

	shardErrors *prometheus.CounterVec // by shard, of this topic
	shardLabel  func(shard, shards int) string
	placed      atomic.Int64 // M, from SetPlacement

	shards, epoch, migrating, misplaced, orphans, moveRate, moveLeft, inflight, inflightBytes, workers, retrying,
	unreadable, paused prometheus.Gauge

	blocked     map[string]prometheus.Gauge // by reason
	retryReason map[string]prometheus.Gauge // by outcome of the message
}

// blockReasons are the labels of topic_blocked: RabbitMQ's answer to the topic's route,
// or that Redis refuses to serve the topic.
func blockReasons() []string {
	return []string{"not_found", "precondition_failed", "access_refused", "redis", otherReason}
}

const otherReason = "other"

// retryReasons are the labels of retry_reason: why the broker did not accept a message.
func retryReasons() []string { return []string{"returned", "refused", "overdue"} }

// Topic returns the handle of a topic and makes its series appear, at zero. Call it once
// and keep the handle: two handles of one topic count into the same series.
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
		orphans:       v.orphans.WithLabelValues(name),
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

// Forget removes a topic's series. Call it once the topic is gone and its workers have
// stopped: later counts of an old handle are not exported.
func (m *Metrics) Forget(topic string) {
	m.topics.mu.Lock()
	defer m.topics.mu.Unlock()
	for _, v := range m.topics.vectors {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}

// Forwarded counts a task that RabbitMQ confirmed and did not return. lateness is confirm
// minus due, by Redis's clock. Below zero the task was early, which breaks a promise. It
// then also counts as early, with a lateness of zero.
func (t *TopicMetrics) Forwarded(lateness time.Duration) {
	t.forwarded.Inc()
	if lateness < 0 {
		t.early.Inc()
		lateness = 0
	}
	t.lateness.Observe(lateness.Seconds())
}

// Confirmed observes how long RabbitMQ took to confirm or refuse a message.
func (t *TopicMetrics) Confirmed(took time.Duration) { t.confirm.Observe(took.Seconds()) }

// Redelivered counts a task that was forwarded although an earlier attempt may have
// reached the broker.
func (t *TopicMetrics) Redelivered() { t.redelivered.Inc() }

// Returned counts a message that reached no queue.
func (t *TopicMetrics) Returned() { t.returned.Inc() }

// Nacked counts a message that the broker refused.
func (t *TopicMetrics) Nacked() { t.nacked.Inc() }

// Overdue counts a message that the broker did not answer in time, although it answered
// others.
func (t *TopicMetrics) Overdue() { t.overdue.Inc() }

// Parked counts n tasks set aside after their last attempt.
func (t *TopicMetrics) Parked(n int) { t.parked.Add(float64(n)) }

// Released counts n tasks whose claim was given back.
func (t *TopicMetrics) Released(n int) { t.released.Add(float64(n)) }

// Tick counts a finished tick; an empty one found nothing due.
func (t *TopicMetrics) Tick(empty bool) {
	t.ticks.Inc()
	if empty {
		t.emptyTicks.Inc()
	}
}

// Claimed observes how long a claim's round trip to Redis took.
func (t *TopicMetrics) Claimed(took time.Duration) { t.claim.Observe(took.Seconds()) }

// ShardError counts an error that Redis returned for one shard.
func (t *TopicMetrics) ShardError(shard int) {
	shards := max(int(t.placed.Load()), shard+1) // M may have become less
	t.shardErrors.WithLabelValues(t.shardLabel(shard, shards)).Inc()
}

// SetPlacement records the placement this scanner uses: M, the epoch, and whether tasks
// are moving.
func (t *TopicMetrics) SetPlacement(shards int, epoch int64, migrating bool) {
	t.shards.Set(float64(shards))
	t.epoch.Set(float64(epoch))
	t.migrating.Set(oneIf(migrating))
	t.placed.Store(int64(shards))
	for at := range shards {
		t.shardErrors.WithLabelValues(t.shardLabel(at, shards)) // start at 0, so that rate() sees the first error
	}
}

// Moved counts tasks moved to their new shard.
func (t *TopicMetrics) Moved(n int) { t.moved.Add(float64(n)) }

// SetProgress sets how many tasks a migration still has to move, the fleet's rate in tasks
// per second, and the time left at that rate. All are 0 without a migration.
func (t *TopicMetrics) SetProgress(misplaced int64, rate float64, left time.Duration) {
	t.misplaced.Set(float64(misplaced))
	t.moveRate.Set(rate)
	t.moveLeft.Set(left.Seconds())
}

// SetOrphans sets how many tasks lie in shards that no scanner polls. It is 0 once their
// recovery has begun.
func (t *TopicMetrics) SetOrphans(n int64) { t.orphans.Set(float64(n)) }

// SetInflight sets how many tasks this scanner has claimed and not settled. bytes is the
// memory of those without an outcome.
func (t *TopicMetrics) SetInflight(tasks, bytes int) {
	t.inflight.Set(float64(tasks))
	t.inflightBytes.Set(float64(bytes))
}

// SetBlocked records why the topic can't be delivered. Reasons outside blockReasons count
// as "other"; "" means that it can be delivered.
func (t *TopicMetrics) SetBlocked(reason string) {
	if reason != "" && t.blocked[reason] == nil {
		reason = otherReason
	}
	for r, g := range t.blocked {
		g.Set(oneIf(r == reason))
	}
}

// SetUnreadable sets how many due tasks are left alone because of their records.
func (t *TopicMetrics) SetUnreadable(n int64) { t.unreadable.Set(float64(n)) }

// SetRetrying sets how many tasks wait for another attempt or are in it. They are tasks
// that this scanner gave back because the broker did not accept them. reason is the
// newest one's, out of retryReasons.
func (t *TopicMetrics) SetRetrying(n int64, reason string) {
	t.retrying.Set(float64(n))
	for r, g := range t.retryReason {
		g.Set(oneIf(n > 0 && r == reason))
	}
}

// SetPaused records whether the topic is paused.
func (t *TopicMetrics) SetPaused(yes bool) { t.paused.Set(oneIf(yes)) }

// AddWorkers changes the number of workers this scanner runs for the topic.
func (t *TopicMetrics) AddWorkers(delta int) { t.workers.Add(float64(delta)) }

// topicVectors are the metrics labelled by topic. The lock separates Topic and Forget, so
// that a handle is resolved whole or not at all.
type topicVectors struct {
	mu      sync.Mutex
	vectors []vector

	forwarded, early, redelivered, returned, nacked *prometheus.CounterVec
	parked, released, ticks, emptyTicks, moved      *prometheus.CounterVec
	overdue, shardErrors                            *prometheus.CounterVec

	lateness, confirm, claim *prometheus.HistogramVec

	shards, epoch, migrating, misplaced, orphans, moveRate, moveLeft, inflight, inflightBytes, workers, retrying,
	unreadable, paused *prometheus.GaugeVec

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
	v.redelivered = v.counter("redelivered_total",
		"Tasks forwarded although an earlier attempt may have reached RabbitMQ.")
	v.returned = v.counter("returned_total", "Messages returned by RabbitMQ as unroutable.")
	v.nacked = v.counter("nacked_total", "Messages refused by RabbitMQ.")
	v.overdue = v.counter("overdue_total", "Messages that RabbitMQ did not answer in time, although it answered others.")
	v.parked = v.counter("parked_total", "Tasks set aside after their last attempt.")
	v.released = v.counter("released_total", "Tasks whose claim was given back.")
	v.ticks = v.counter("ticks_total", "Ticks that workers spent with a shard.")
	v.emptyTicks = v.counter("empty_ticks_total", "Ticks in which nothing was due.")
	v.moved = v.counter("moved_tasks_total", "Tasks this scanner moved to their new shard.")
	v.shardErrors = v.counter("shard_errors_total",
		"Errors that Redis returned for one shard, such as a key of the wrong type; its tasks stay where they are.", "shard")
	v.lateness = v.histogram("lateness_seconds", "Confirm time minus due time of the tasks forwarded.", latenessBuckets())
	v.confirm = v.histogram("publish_confirm_seconds", "From a publish to RabbitMQ's confirm.", confirmBuckets())
	v.claim = v.histogram("claim_seconds", "Round trip of a claim to Redis.", claimBuckets())
	v.shards = v.gauge("shards", "M, the topic's number of shards.")
	v.epoch = v.gauge("placement_epoch", "Epoch of the placement this scanner uses.")
	v.migrating = v.gauge("migrating", "1 while tasks move to a new placement.")
	v.misplaced = v.gauge("misplaced_tasks", "Tasks that a migration still has to move.")
	v.orphans = v.gauge("stray_tasks", "Orphaned tasks: this scanner found them in shards that no scanner polls. The "+
		"fleet recovers them.")
	v.moveRate = v.gauge("move_rate_tasks_per_second",
		"Tasks that the whole fleet moves per second, averaged since the migration began.")
	v.moveLeft = v.gauge("move_left_seconds",
		"How long the rest of the migration takes at move_rate_tasks_per_second; 0 if unknown.")
	v.inflight = v.gauge("inflight_tasks", "Tasks this scanner has claimed and not settled; at most twice the window.")
	v.inflightBytes = v.gauge("inflight_bytes",
		"Memory that this scanner holds for tasks whose outcome isn't known; in_flight_bytes limits the sum over all topics.")
	v.workers = v.gauge("workers", "Workers this scanner runs.")
	v.paused = v.gauge("paused", "1 while the topic is paused by its settings: tasks are accepted and wait.")
	v.blocked = v.gauge("topic_blocked", "1 while the topic can't be delivered: RabbitMQ refuses its exchange or "+
		"declaration, or Redis refuses to serve it.", "reason")
	v.retrying = v.gauge("retrying_tasks", "Tasks that this scanner retries because RabbitMQ returned or refused them, "+
		"or did not answer in time; sum over scanners.")
	v.unreadable = v.gauge("unreadable_tasks",
		"Due tasks that this scanner left alone in the last minute. Their records are missing or in a newer format than "+
			"it reads. Sum over scanners.")
	v.retryReason = v.gauge("retry_reason",
		"1 for the reason of the newest of retrying_tasks, while there are some: returned, refused or overdue.", "reason")
	return v
}

// latenessBuckets begin at 0.5 ms, because a polled shard forwards within the millisecond
// and a regression must show there. Steps of 1, 2, 3, 5 keep a quantile's error within a
// factor of two. Each round objective up to 10 s is a bound. The three above
// distinguish short and long outages from a shard that waits for its turn, at most
// tick x M / workers.
func latenessBuckets() []float64 {
	return []float64{
		.0005, .001, .002, .003, .005, .01, .02, .03, .05, .1, .2, .3, .5, 1, 2, 3, 5, 10,
		30, 60, 300,
	}
}

// confirmBuckets reach from a queue in memory to a broker that is about to be given up.
// The default lease of 30 s bounds the wait for a confirm.
func confirmBuckets() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}
}

// claimBuckets begin at a round trip over loopback and end at a Redis client's time-outs.
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
