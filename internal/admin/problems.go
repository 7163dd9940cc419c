package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
)

// lateAfter is how long a due task may wait before it is a problem, as for the alert
// DuefleetTasksLate.
const lateAfter = time.Minute

// judge sets Problems, Status and the topics' notes. now is the time of the reading. If the
// status is of one topic, it leaves out the problems of the others; else topic is "".
func (s *Status) judge(now time.Time, topic string) {
	live := len(balance.Live(s.Fleet))
	found := slices.Concat(s.fleetProblems(live), balance.Problems(s.Fleet))
	for i := range s.Topics {
		found = append(found, s.Topics[i].problems(now)...)
	}
	s.Problems = problem.Merge(slices.DeleteFunc(found, func(p problem.Problem) bool {
		return topic != "" && p.Topic != "" && p.Topic != topic
	}))
	for i := range s.Problems {
		if p := &s.Problems[i]; p.Severity == problem.Broken && !p.Kind.Shared() && len(p.Nodes) > 0 && len(p.Nodes) < live {
			p.Severity = problem.Degraded // the others don't have it
		}
	}
	s.Status = problem.Verdict(s.Problems)
	of := map[string][]problem.Problem{}
	for _, p := range s.Problems {
		of[p.Topic] = append(of[p.Topic], p)
	}
	for i := range s.Topics {
		t := &s.Topics[i]
		t.Status = problem.Verdict(of[t.Topic])
		for _, p := range of[t.Topic] {
			t.note(p)
		}
	}
}

// fleetProblems returns what is wrong with the list of members: nobody lives, or some of
// them died and were not replaced. If nobody can write the list, it returns that alone.
func (s *Status) fleetProblems(live int) []problem.Problem {
	if len(s.replicas) > 0 {
		return []problem.Problem{problem.New(problem.RedisRefuses, "", "redis at "+s.replicas[0].String()+
			": no scanner can work; set redis.addrs to the master")}
	}
	if live == 0 {
		return []problem.Problem{problem.New(problem.NoScanner, "", "no scanner runs")}
	}
	var dead []string
	var since time.Time
	for _, m := range unreplaced(s.Fleet) {
		dead = append(dead, m.Instance)
		if since.IsZero() || m.Heartbeat.Before(since) {
			since = m.Heartbeat
		}
	}
	if len(dead) == 0 {
		return nil
	}
	slices.Sort(dead)
	p := problem.New(problem.ScannerDead, "", fmt.Sprintf("%d of %d scanners died, or don't reach Redis: %s", len(dead),
		len(s.Fleet), strings.Join(dead, ", ")))
	p.Since, p.Facts = since, map[string]string{"scanners": strings.Join(dead, ", ")}
	return []problem.Problem{p}
}

// unreplaced returns the dead members that no other one has replaced, the last that died
// first. A member that started since replaces one of them. Its clock may differ from
// Redis's, and a rollout may start it before the other one dies, both by Silence at most.
// A scanner that leaves isn't in the list.
func unreplaced(fleet []balance.Member) (dead []balance.Member) {
	var started []time.Time
	for _, m := range fleet {
		if m.Alive {
			started = append(started, m.Started.Add(balance.Silence))
		} else {
			dead = append(dead, m)
		}
	}
	slices.SortFunc(dead, func(a, b balance.Member) int { return b.Heartbeat.Compare(a.Heartbeat) })
	return slices.DeleteFunc(dead, func(m balance.Member) bool {
		i := slices.IndexFunc(started, func(at time.Time) bool { return at.After(m.Heartbeat) })
		if i >= 0 {
			started = slices.Delete(started, i, i+1)
		}
		return i >= 0
	})
}

// problems returns what Redis shows of the topic, with what its counts show.
func (s *TopicStatus) problems(now time.Time) []problem.Problem {
	if late := now.Sub(s.Oldest); !s.Oldest.IsZero() && late > lateAfter {
		s.addProblem(problem.TasksLate, fmt.Sprintf("a task has been due for %s", late.Round(time.Second)))
		s.found[len(s.found)-1].Since = s.Oldest
	}
	if s.Parked > 0 {
		s.addProblem(problem.TasksParked, fmt.Sprintf("%d tasks are parked", s.Parked), "tasks", s.Parked)
	}
	if s.Limited {
		s.addProblem(problem.RateLimited, fmt.Sprintf("the rate of %d a second holds back %d due tasks", s.Rate, s.Backlog),
			"tasks", s.Backlog)
	}
	return s.found
}

// note adds a problem to the topic's kinds, and its text to the notes unless the counts show
// it.
func (s *TopicStatus) note(p problem.Problem) {
	if !slices.Contains(s.Kinds, p.Kind) { // several shards may have it
		s.Kinds = append(s.Kinds, p.Kind)
	}
	switch p.Kind {
	case problem.TasksLate, problem.TasksParked, problem.RateLimited:
	default:
		s.Notes = append(s.Notes, p.Text)
	}
}

// Lines returns each problem that no topic's notes or counts show, in one line. It counts
// those that many topics have.
func (s *Status) Lines() []string {
	shown := map[string]bool{}
	for _, t := range s.Topics {
		shown[t.Topic] = true
	}
	return s.lines(func(p problem.Problem) bool {
		return p.Topic == "" && p.Kind != problem.NoScanner || p.Topic != "" && !shown[p.Topic]
	})
}

// Reasons returns why the fleet isn't healthy, one line for each problem; nil if it is. It
// counts the problems that many topics have.
func (s *Status) Reasons() []string {
	return s.lines(func(p problem.Problem) bool { return p.Severity != problem.Notice })
}

// lines returns the problems that which selects, three of each kind that topics have, and
// a count of the others.
func (s *Status) lines(which func(problem.Problem) bool) (lines []string) {
	live := len(balance.Live(s.Fleet))
	all := slices.DeleteFunc(slices.Clone(s.Problems), func(p problem.Problem) bool { return !which(p) })
	kind := func(p problem.Problem) string {
		if p.Topic == "" {
			return ""
		}
		return string(p.Kind)
	}
	for p, more := range Few(all, kind) {
		if more == nil {
			lines = append(lines, p.Line(live))
			continue
		}
		names := make([]string, len(more))
		for i, p := range more {
			names[i] = p.Topic
		}
		lines = append(lines, fmt.Sprintf("%d more problems %s: topics %s", len(more), p.Kind, Names(names)))
	}
	return lines
}

// WorstFirst returns the topics in another order: by their status, the broken ones first, then
// by their oldest task, their backlog and their name.
func (s *Status) WorstFirst() []TopicStatus {
	ranks := []problem.Severity{problem.Broken, problem.Degraded, problem.Healthy}
	return slices.SortedFunc(slices.Values(s.Topics), func(a, b TopicStatus) int {
		return cmp.Or(slices.Index(ranks, a.Status)-slices.Index(ranks, b.Status), compareOldest(a.Oldest, b.Oldest),
			cmp.Compare(b.Backlog, a.Backlog), cmp.Compare(a.Topic, b.Topic))
	})
}

// compareOldest orders due times, the earliest first and those without a task last.
func compareOldest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}
