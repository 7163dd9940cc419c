// Package admin reads and changes a fleet for an operator, through Redis alone: its
// status, its tasks, the parked ones, and a topic's removal. None of it needs a running
// scanner.
package admin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
)

// Status is the status of a fleet; it is read from Redis alone.
type Status struct {
	// Status is the verdict on Problems: healthy, degraded or broken.
	Status problem.Severity `json:"status"`
	// Problems merges the problems of the live scanners and those that Redis shows. The
	// worse ones come first.
	Problems []problem.Problem `json:"problems"`
	Topics   []TopicStatus     `json:"topics"`
	Fleet    []balance.Member  `json:"fleet"`

	replicas []registry.Replica // servers that take no writes; empty while scanners live
}

// TopicStatus is the status of one topic.
type TopicStatus struct {
	Topic    string      `json:"topic"`
	Shards   int         `json:"shards"`
	Previous int         `json:"previous_shards,omitempty"`
	Epoch    int64       `json:"epoch"`
	Phase    shard.Phase `json:"phase"`
	Change   *Change     `json:"change,omitempty"` // while migrating
	Polled   int         `json:"polled_shards"`
	Pending  int64       `json:"pending"`
	Backlog  int64       `json:"backlog"`
	Leased   int64       `json:"leased"`
	Parked   int64       `json:"parked"`
	// orphaned tasks: in shards that no scanner polls, in none of the counts above
	Orphans int64 `json:"orphans,omitempty"`
	// Oldest is when the earliest waiting task was due, or will be. A task that waits for
	// another attempt counts by its original due time if a live scanner knows it. In
	// PerShard it counts by the time of that attempt.
	Oldest time.Time `json:"oldest_due,omitzero"`
	// Retrying is how many tasks wait for another attempt, or are in it, because the
	// broker did not accept them. RetryReason is the newest one's reason. Living scanners
	// report the tasks that they gave back since they started, as in balance.TopicNote.
	Retrying    int64  `json:"retrying"`
	RetryReason string `json:"retry_reason,omitempty"`
	// UnreadableTasks is how many due tasks live scanners leave alone. Their records
	// are missing, or in a newer format than the scanners read. They are in Pending, not
	// in Backlog. Oldest is at most the time when the first of them was met.
	UnreadableTasks int64 `json:"unreadable_tasks,omitempty"`
	// Settings in force that differ from the defaults, from a live scanner. Paused and
	// Rate are among them. Rate is in tasks per second over the fleet; 0: no limit.
	Settings map[string]string `json:"settings,omitempty"`
	Paused   bool              `json:"paused"`
	Rate     int               `json:"rate"`
	// PausedUntil is when the pause ends by itself; zero if it doesn't. PausedReason is
	// why the topic is paused.
	PausedUntil  time.Time `json:"paused_until,omitzero"`
	PausedReason string    `json:"paused_reason,omitempty"`
	// Limited is true if the rate holds tasks back: the backlog waits for it.
	Limited bool `json:"rate_limited"`
	// PerSecond is how many tasks per second the live scanners forwarded in the last
	// minute.
	PerSecond float64 `json:"forwarded_per_second"`
	// Median and Worst are the 50th and 99th percentile of these tasks' lateness, in
	// seconds: confirm minus due. They are at most a fifth too large; 0 without tasks.
	Median   float64       `json:"lateness_p50_seconds"`
	Worst    float64       `json:"lateness_p99_seconds"`
	PerShard []shard.Stats `json:"per_shard"`
	// Unreadable shards are in none of the counts.
	Unreadable []shard.UnreadableShard `json:"unreadable_shards,omitempty"`
	// Source is the recorded source of the topic's document: "file", or "consul:" and the
	// prefix there. It is "" if there is none or this user may not read it.
	Source string `json:"source,omitempty"`
	// Status is the verdict on the topic's problems, and Kinds are their kinds, the worse ones
	// first.
	Status problem.Severity `json:"status"`
	Kinds  []problem.Kind   `json:"problem_kinds,omitempty"`
	// Notes are the texts of the topic's problems, without those that its counts show.
	Notes []string `json:"notes,omitempty"`

	found []problem.Problem // what Redis shows of the topic
}

// addProblem adds a problem of the topic. facts are names and values in turn.
func (s *TopicStatus) addProblem(kind problem.Kind, text string, facts ...any) {
	p := problem.New(kind, s.Topic, text)
	for i := 0; i+1 < len(facts); i += 2 {
		if p.Facts == nil {
			p.Facts = map[string]string{}
		}
		p.Facts[fmt.Sprint(facts[i])] = fmt.Sprint(facts[i+1])
	}
	s.found = append(s.found, p)
}

// Change is the progress of a change of the shard count.
type Change struct {
	Since     time.Time `json:"since"`
	Clean     int       `json:"clean_shards"`
	Moved     int64     `json:"moved"`
	Misplaced int64     `json:"misplaced"` // still to be moved or delivered; estimated in large shards
	Rate      float64   `json:"moved_per_second"`
	End       time.Time `json:"estimated_end,omitzero"`
}

// count adds up the counts of the first shards, without the shards that unread names. No
// scanner polls the shards of a removed topic.
func (s *TopicStatus) count(stats []shard.Stats, unread error) error {
	s.PerShard = stats
	if err := s.leaveOut(unread); err != nil {
		return err
	}
	s.addUnreadable()
	for _, v := range s.PerShard {
		s.Pending += v.Pending
		s.Backlog += v.Backlog
		s.Leased += v.Leased
		s.Parked += v.Parked
		if !v.Oldest.IsZero() && (s.Oldest.IsZero() || v.Oldest.Before(s.Oldest)) {
			s.Oldest = v.Oldest
		}
	}
	if s.Phase == shard.Removed {
		s.addProblem(problem.RemovalInterrupted, fmt.Sprintf("its removal was interrupted, and %d tasks lie still: "+
			"`scanner topic rm %s` finishes it, or brings the topic back if there are tasks; --purge removes them", s.Pending,
			s.Topic), "tasks", s.Pending)
	}
	return nil
}

// leaveOut records shards that can't be read, and returns every other error.
func (s *TopicStatus) leaveOut(err error) error {
	unreadable := shard.Unreadable(err)
	if unreadable == nil {
		return err
	}
	for _, u := range unreadable {
		same := func(other shard.UnreadableShard) bool { return other.Shard == u.Shard }
		if !slices.ContainsFunc(s.Unreadable, same) {
			s.Unreadable = append(s.Unreadable, u)
		}
	}
	return nil
}

// addUnreadable notes which shards are left out, and why the first of them is.
func (s *TopicStatus) addUnreadable() {
	if len(s.Unreadable) == 0 {
		return
	}
	slices.SortFunc(s.Unreadable, func(a, b shard.UnreadableShard) int { return a.Shard - b.Shard })
	shards := make([]int, len(s.Unreadable))
	for i, u := range s.Unreadable {
		shards[i] = u.Shard
	}
	s.addProblem(problem.ShardsUnreadable, fmt.Sprintf("%s can't be read, so the counts are too low: %s",
		shard.ShardNames(shards), s.Unreadable[0].Error), "shards", len(shards))
}

// addReports adds what the live scanners report about the topic. They may report retries that
// were cancelled or replaced since. So there are at most as many as stored tasks that
// aren't parked.
func (s *TopicStatus) addReports(fleet []balance.Member) {
	live := balance.Live(fleet)
	slices.SortStableFunc(live, func(a, b balance.Member) int { return cmp.Compare(b.Applied, a.Applied) })
	var all balance.TopicNote
	for _, m := range live {
		all = all.Plus(m.Topics[s.Topic])
	}
	s.Settings, s.Paused, s.Rate = all.Settings, all.Paused, all.Rate
	s.Limited = all.Limited && s.Backlog > 0
	s.PerSecond = all.PerSecond
	s.Median, s.Worst = all.Lateness.Quantile(.5).Seconds(), all.Lateness.Quantile(.99).Seconds()
	if s.Paused {
		s.PausedUntil, s.PausedReason = all.PausedUntil, all.PausedReason
		s.addProblem(problem.TopicPaused, s.pause(), "tasks", s.Backlog)
	}
	if s.UnreadableTasks = all.Unreadable; s.UnreadableTasks > 0 {
		s.overdue(all.UnreadableSince)
		s.addProblem(problem.RecordsUnreadable, fmt.Sprintf("%d tasks are due and lie still: their records are of a newer "+
			"format than these scanners read; upgrade the scanners again, to the version that wrote them", s.UnreadableTasks),
			"tasks", s.UnreadableTasks)
	}
	all.Retrying = min(all.Retrying, s.Pending-s.Parked)
	if since := all.RetryingSince; !since.IsZero() && s.Pending > s.Parked &&
		(s.Oldest.IsZero() || since.Before(s.Oldest)) {
		s.Oldest = since
	}
	if s.Retrying, s.RetryReason = all.Retrying, all.RetryReason; s.Retrying > 0 {
		s.addProblem(problem.TasksRetried, fmt.Sprintf("%d tasks wait for another attempt: %s", s.Retrying, s.RetryReason),
			"tasks", s.Retrying, "reason", s.RetryReason)
	}
}

// overdue counts tasks that no scanner can read in the oldest due times of their shards
// and of the topic. The score of such a task only says when it is next checked.
func (s *TopicStatus) overdue(since map[int]time.Time) {
	for i := range s.PerShard {
		v := &s.PerShard[i]
		at, there := since[v.Shard]
		if !there || v.Pending <= v.Parked {
			continue
		}
		if v.Oldest.IsZero() || at.Before(v.Oldest) {
			v.Oldest = at.UTC()
		}
		if s.Oldest.IsZero() || at.Before(s.Oldest) {
			s.Oldest = at.UTC()
		}
	}
}

// pause says until when the topic is paused, and why.
func (s *TopicStatus) pause() string {
	text, until := "paused", "it is resumed"
	if s.PausedReason != "" {
		text += " (" + s.PausedReason + ")"
	}
	if !s.PausedUntil.IsZero() {
		until = s.PausedUntil.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: nothing is delivered until %s; %d tasks are due", text, until, s.Backlog)
}
