package scanner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/notice"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// observe sets up the health checks and metrics of this member.
func (s *Scanner) observe() error {
	checks := []telemetry.Check{
		{Name: "serving", Required: true, Probe: s.atWork},
		{Name: "redis", Required: true, Probe: s.redisUp},
		{Name: "rabbitmq", Required: true, Probe: s.rabbitUp},
		{Name: "config", Required: true, Probe: s.reloader.configured},
		{Name: "topics", Required: true, Probe: s.reloader.topicsMade},
		{Name: "shards", Probe: s.shardsServed},
		{Name: "routes", Probe: s.routesOpen},
		{Name: "source", Probe: s.ownSource},
	}
	if s.registration != nil {
		checks = append(checks, telemetry.Check{Name: "consul", Probe: s.consulUp})
	}
	admin, err := telemetry.NewServer(telemetry.ServerConfig{
		Listen: s.cfg.Settings.Admin.Listen, Instance: s.cfg.Instance, Registry: s.cfg.Registry, Checks: checks, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.admin = admin
	collector, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{Stats: s.shardStats, Metrics: s.metrics,
		Log: s.log})
	if err != nil {
		return err
	}
	if err := s.cfg.Registry.Register(collector); err != nil {
		return err
	}
	return s.observeCertificates()
}

// measure sets the metrics about what this member depends on. It is called after each
// heartbeat.
func (s *Scanner) measure() {
	if state := s.heartbeat.State(); !state.Answered.IsZero() {
		s.metrics.LiveScanners.Set(float64(state.Live))
	}
	s.metrics.SetConfigDocuments(s.reloader.documents())
	for _, v := range s.reloader.all() {
		v.topic.metrics.SetInflight(v.topic.window.inUse())
		v.topic.metrics.SetBlocked(v.topic.blocked())
		v.topic.metrics.Unreadable.Set(float64(v.topic.notices.skipped.tasks()))
		v.topic.metrics.SetRetrying(v.topic.retries.count(), v.topic.retries.last().String())
	}
	up, _ := s.redisUp()
	s.metrics.RedisUp.Set(up)
	connected, blocked, _ := s.connection.State()
	s.metrics.RabbitMQConnected.Set(connected)
	s.metrics.RabbitMQBlocked.Set(blocked)
}

// atWork fails once the scanner is stopping, so that nobody waits for it to become ready.
func (s *Scanner) atWork() (bool, string) {
	if s.stopping.Load() {
		return false, "stopping"
	}
	return true, "at work"
}

func (s *Scanner) redisUp() (bool, string) {
	state, why := s.heartbeat.State(), ""
	if state.Failure != "" {
		why = ": " + state.Failure
	}
	if state.Answered.IsZero() {
		return false, "not reached yet" + why
	}
	if since := time.Since(state.Answered); since > balance.Silence {
		return false, fmt.Sprintf("no answer for %s%s", since.Round(time.Second), why)
	}
	if text := s.reloader.refusals.denied(); text != "" {
		return false, text
	}
	for _, v := range s.reloader.all() {
		text := v.topic.health.unserved()
		if shards, denied := v.topic.health.refusals.shards(v.topic.view.scanned()); text == "" && denied {
			text = shards
		}
		if text != "" {
			return false, "does not serve topic " + v.topic.name + ": " + text
		}
	}
	if unsafe := s.durability.warnings(); len(unsafe) > 0 { // all other scanners have the same problem
		return true, "answers, but may lose what it acknowledged: " + strings.Join(unsafe, "; ")
	}
	return true, "answers"
}

func (s *Scanner) rabbitUp() (bool, string) {
	connected, blocked, reason := s.connection.State()
	switch {
	case !connected:
		return false, "not connected: " + reason
	case blocked:
		return false, "blocks publishers: " + reason
	}
	return true, "connected"
}

func (s *Scanner) consulUp() (bool, string) {
	_, errs, heard := s.reloader.state()
	if trouble := errs[""]; trouble != "" {
		return false, "last good settings stay in force: " + trouble
	}
	if !heard {
		return false, "not heard yet"
	}
	if why := s.registration.refusal.Load(); why != nil {
		return true, "answers, but does not register this scanner: " + *why
	}
	return true, "answers"
}

// ownSource fails while documents of another source are in force instead of this
// scanner's own. The scanner still delivers, so the check isn't required.
func (s *Scanner) ownSource() (bool, string) {
	if why := s.sources.why(); why != "" {
		return false, why
	}
	return true, cmp.Or(s.sources.own, "not compared")
}

// configured fails until this scanner has read documents, from its source or from Redis.
func (r *reloader) configured() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read && !r.restored {
		return false, "not read yet"
	}
	return true, fmt.Sprintf("%d topics, %d errors", len(r.topics), len(r.errors))
}

// topicsMade fails while Redis has no placement of a topic whose document is in force:
// producers would get the error that the topic is unknown. A topic whose source isn't
// known fails it too. Topics whose document has vanished or become bad aren't made, and
// don't count. A topic that can't be forwarded doesn't count either: it still takes and
// keeps tasks, and status reports it.
func (r *reloader) topicsMade() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := slices.Clone(r.pending)
	for name, v := range r.topics {
		if p, _ := v.topic.view.known(); p.Epoch == 0 && !v.orphan.Load() && r.errors[name] == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return false, "not in Redis yet: " + strings.Join(missing, ", ")
	}
	return true, fmt.Sprintf("%d served", len(r.topics))
}

// shardsServed fails while Redis refuses to serve some shards, and names them. Other
// scanners have the same problem with these, so the check isn't required.
func (s *Scanner) shardsServed() (bool, string) {
	var all []string
	for _, v := range s.reloader.all() {
		if text, _ := v.topic.health.refusals.shards(v.topic.view.scanned()); text != "" {
			all = append(all, "topic "+v.topic.name+": "+text)
		}
	}
	slices.Sort(all)
	if len(all) > 0 {
		return false, strings.Join(all, "; ")
	}
	return true, "served"
}

// routesOpen fails while RabbitMQ refuses the routes of topics, and names them. An
// exchange may be missing or declared differently. RabbitMQ refuses that to every
// scanner, and the tasks wait, so the check isn't required.
func (s *Scanner) routesOpen() (bool, string) {
	var all []string
	for _, v := range s.reloader.all() {
		if block, _ := v.topic.publisher.Blocked(); block.Reason != "" {
			all = append(all, "topic "+v.topic.name+": "+block.Reason)
		}
	}
	slices.Sort(all)
	if len(all) > 0 {
		return false, strings.Join(all, "; ")
	}
	return true, "none refused"
}

// shardStats counts the tasks in every shard of every served topic. It leaves out shards
// that can't be read, and counts them as errors.
func (s *Scanner) shardStats(ctx context.Context) ([]telemetry.ShardStat, error) {
	var all []telemetry.ShardStat
	for _, v := range s.reloader.all() {
		t := v.topic
		n := t.view.scanned()
		stats, err := t.store.Stats(ctx, n)
		unreadable := shard.Unreadable(err)
		if err != nil && unreadable == nil {
			return nil, err
		}
		for _, u := range unreadable {
			t.metrics.ShardError(u.Shard)
		}
		retried := t.retries.oldest()
		for _, v := range stats {
			stat := telemetry.ShardStat{
				Topic: t.name, Shard: v.Shard, Of: n, Pending: v.Pending, Backlog: v.Backlog, Leased: v.Leased, Parked: v.Parked,
			}
			if !v.Oldest.IsZero() {
				stat.OldestDue = max(v.Now.Sub(v.Oldest), 0)
			}
			if due, there := retried[v.Shard]; there && v.Pending > v.Parked {
				stat.OldestDue = max(stat.OldestDue, v.Now.Sub(due))
			}
			all = append(all, stat)
		}
	}
	return all, nil
}

// trouble returns why a topic isn't served as it should be; "" if it is.
func (v *served) trouble() string {
	if ready, reason := v.topic.publisher.Ready(); !ready {
		return reason
	}
	if block, _ := v.topic.publisher.Blocked(); block.Reason != "" {
		return block.Reason
	}
	if why := v.topic.health.unserved(); why != "" {
		return "not served by Redis: " + why
	}
	if text, _ := v.topic.health.refusals.shards(v.topic.view.scanned()); text != "" {
		return text
	}
	if v.orphan.Load() {
		return "orphan: it has no document; set it or remove it with `scanner topic`"
	}
	return ""
}

// redisText returns the text of an error from Redis, with advice.
func redisText(err error) string {
	text := err.Error()
	return text + config.Advice("redis", text)
}

// topicHealth records what keeps Redis from serving one topic, for readiness, status and
// the log. It is safe for concurrent use.
type topicHealth struct {
	log     *slog.Logger
	metrics *telemetry.TopicMetrics
	errors  func(operation string) // counts an error

	outage   atomic.Pointer[string] // why a worker waits for Redis; nil: no worker does.
	refusals refusals               // of claims and moves by shard, of other operations under everyShard.
	worked   sync.Map               // has the key of each operation that succeeded when it was last tried.
}

// unserved returns why Redis doesn't serve the topic as a whole; "" if it does.
func (h *topicHealth) unserved() string {
	if why := h.outage.Load(); why != nil {
		return *why
	}
	return h.refusals.denied()
}

// fails notes that Redis refuses an operation in one shard. It logs when that begins, and
// counts each time.
func (h *topicHealth) fails(ctx context.Context, at int, operation string, err error) {
	h.errors(operation)
	h.metrics.ShardError(at)
	h.worked.Delete(refusal{at, operation})
	if h.refusals.note(refusal{at, operation}, true, err) {
		h.log.WarnContext(ctx, "redis does not serve this shard", "shard", at, "operation", operation, "error",
			redisText(err))
	}
}

// works notes that an operation in one shard succeeded.
func (h *topicHealth) works(ctx context.Context, at int, operation string) {
	h.worked.Store(refusal{at, operation}, true)
	if h.refusals.note(refusal{at, operation}, false, nil) {
		h.log.InfoContext(ctx, "redis serves this shard again", "shard", at, "operation", operation)
	}
}

// confirmedOnce reports whether the last claim from a shard succeeded.
func (h *topicHealth) confirmedOnce(at int) bool {
	_, worked := h.worked.Load(refusal{at, "claim"})
	return worked
}

// listens notes whether Redis lets this scanner listen for new tasks; nil means that it
// does. If not, a task that is due soon may wait for a tick.
func (h *topicHealth) listens(err error) {
	ctx := context.Background()
	if err != nil {
		h.errors("listen")
	}
	switch news := h.refusals.noteDenied("listen", err); {
	case news && err != nil:
		h.log.WarnContext(ctx, "redis does not let this scanner listen for new tasks", "error", redisText(err))
	case news:
		h.log.InfoContext(ctx, "redis lets this scanner listen for new tasks again")
	}
}

// refusals are the operations that Redis refuses with errors that no repeat fixes. An
// operation stays here until it succeeds. It may fail in one shard, because of a key of
// the wrong type or a missing right, while the other shards are served. Or it may fail in
// all shards, because of a missing right or a wrong password.
type refusals struct {
	mu  sync.Mutex
	why map[refusal]reason
}

type refusal struct {
	shard     int // or everyShard
	operation string
}

// everyShard stands for operations that belong to no single shard.
const everyShard = -1

type reason struct {
	text   string
	denied bool // because of a missing right or a wrong password
	logged bool
}

// refusalsLogged bounds how many refusals in a topic's shards are logged one by one. All
// of 4,096 shards may lack the same right.
const refusalsLogged = 10

// note records why an operation is refused, or removes the record if it isn't. It reports
// whether the log should say so.
func (r *refusals) note(at refusal, refused bool, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, there := r.why[at]
	if !refused {
		delete(r.why, at)
		return before.logged
	}
	if r.why == nil {
		r.why = map[refusal]reason{}
	}
	logged := before.logged || !there && (at.shard == everyShard || len(r.why) < refusalsLogged)
	r.why[at] = reason{redisText(err), shard.Denied(err), logged}
	return !there && logged
}

// noteDenied records why an operation that belongs to no single shard was denied. Any
// other outcome removes the record. It reports whether the log should say so.
func (r *refusals) noteDenied(operation string, err error) (news bool) {
	return r.note(refusal{everyShard, operation}, shard.Denied(err), err)
}

// denied returns the denied operations that belong to no single shard; "" if there are
// none.
func (r *refusals) denied() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for at, why := range r.why {
		if at.shard == everyShard {
			all = append(all, at.operation+" denied: "+why.text)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// shards names the refused shards among the first n, with the reason for the first one;
// "" if there are none. denied reports whether a right is missing or a password is wrong
// in any of them.
func (r *refusals) shards(n int) (text string, denied bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []refusal
	for at, why := range r.why {
		if at.shard != everyShard && at.shard < n { // else M has become smaller
			all = append(all, at)
			denied = denied || why.denied
		}
	}
	if len(all) == 0 {
		return "", false
	}
	slices.SortFunc(all, func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.operation, b.operation))
	})
	numbers := make([]int, len(all))
	for i, at := range all {
		numbers[i] = at.shard
	}
	return fmt.Sprintf("%s not served by Redis: %s", shard.ShardNames(slices.Compact(numbers)), r.why[all[0]].text), denied
}

// notices are a topic's kinds of log lines that may occur once per task.
type notices struct {
	parked, refused, broken, unsettled, moving *notice.Notice

	skipped *unread // also counts
}

func newNotices(log *slog.Logger) notices {
	return notices{
		parked:    notice.New(log, slog.LevelError, "task parked"),
		refused:   notice.New(log, slog.LevelWarn, "task not accepted by the broker, to be tried again"),
		skipped:   newUnread(notice.New(log, slog.LevelError, "tasks left alone: no record, or one of a newer format")),
		broken:    notice.New(log, slog.LevelError, "task with a broken record parked"),
		unsettled: notice.New(log, slog.LevelWarn, "outcomes not written to redis, trying again"),
		moving:    notice.New(log, slog.LevelWarn, "moving stopped for this tick"),
	}
}
