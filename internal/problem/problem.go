// Package problem has the problems of a fleet as values. A scanner makes a problem where it
// sees it. /readyz, the heartbeat, `scanner status` and `scanner doctor` pass it on, and
// none of them reads its text. docs/adr/0022 gives the reasons.
package problem

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Severity says how bad a problem is.
type Severity string

// The severities. Healthy is the verdict on no problem; no problem has it.
const (
	Healthy Severity = "healthy"
	// Notice: an operator should know of it, and everything is served.
	Notice Severity = "notice"
	// Degraded: a part isn't served, or nothing replaces the next part that fails.
	Degraded Severity = "degraded"
	// Broken: tasks of the topic, or of the fleet if there is no topic, don't leave.
	Broken Severity = "broken"
)

// Problem is one problem of a fleet. Scanners of other versions read it too: a field never
// changes its meaning, and Severity comes from the version that found the problem.
type Problem struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	// Topic is the topic's name, and Shard its shard's number. They are "" if the problem
	// isn't about one topic, or about one shard.
	Topic string `json:"topic,omitempty"`
	Shard string `json:"shard,omitempty"`
	// Nodes are the instances of the scanners that have the problem, in order. They are
	// empty for a problem that was found in Redis.
	Nodes []string `json:"nodes,omitempty"`
	// Since is when it was first seen; zero if that isn't known.
	Since time.Time `json:"since,omitzero"`
	// Facts has values for programs, by name.
	Facts map[string]string `json:"facts,omitempty"`
	// Text is for people: one line without secrets, and without topic and nodes.
	Text string `json:"text"`
	// Advice says what to do. Only Merge sets it, because it is in the table of kinds.
	Advice string `json:"advice,omitempty"`
}

// New returns a problem of a kind, with the kind's severity. topic is "" if it isn't about
// one topic.
func New(kind Kind, topic, text string) Problem {
	return Problem{Kind: kind, Severity: kind.row().severity, Topic: topic, Text: text}
}

// String returns the problem with its topic, on one line.
func (p Problem) String() string {
	if p.Topic == "" {
		return p.Text
	}
	return "topic " + p.Topic + ": " + p.Text
}

// Line returns the problem for an operator. scanners is the number of live ones. Line names
// those that have the problem, if others don't have it.
func (p Problem) Line(scanners int) string {
	switch n := len(p.Nodes); {
	case n == 0 || n >= scanners:
		return p.String()
	case n == 1:
		return "scanner " + p.Nodes[0] + ": " + p.String()
	}
	return "scanners " + strings.Join(p.Nodes, ", ") + ": " + p.String()
}

// key tells problems apart.
type key struct {
	kind         Kind
	topic, shard string
}

func (p Problem) key() key { return key{p.Kind, p.Topic, p.Shard} }

// Verdict returns Healthy, Degraded or Broken: the worst severity of the problems. Notices
// leave a fleet healthy.
func Verdict(found []Problem) Severity {
	worst := Healthy
	for _, p := range found {
		switch {
		case p.Severity == Broken:
			return Broken
		case p.Severity != Notice: // Degraded, or a severity of a newer version
			worst = Degraded
		}
	}
	return worst
}

// Merge joins what several scanners report. Problems of the same kind, topic and shard
// become one. It has all their nodes, the earliest Since, and everything else of the first.
// The worse ones come first, those without a topic before the others.
func Merge(found []Problem) []Problem {
	merged := []Problem{}
	at := map[key]int{}
	for _, p := range found {
		i, there := at[p.key()]
		if !there {
			i = len(merged)
			at[p.key()] = i
			p.Nodes, p.Advice = slices.Clone(p.Nodes), p.Kind.Advice()
			merged = append(merged, p)
			continue
		}
		first := &merged[i]
		first.Nodes = append(first.Nodes, p.Nodes...)
		if first.Since.IsZero() || !p.Since.IsZero() && p.Since.Before(first.Since) {
			first.Since = p.Since
		}
	}
	for i := range merged {
		slices.Sort(merged[i].Nodes)
		merged[i].Nodes = slices.Compact(merged[i].Nodes)
	}
	slices.SortStableFunc(merged, func(a, b Problem) int {
		return cmp.Or(rank(a.Severity)-rank(b.Severity), strings.Compare(a.Topic, b.Topic))
	})
	return merged
}

// rank orders severities, the worst first.
func rank(s Severity) int {
	switch s {
	case Broken:
		return 0
	case Notice:
		return 2
	}
	return 1
}

// Tracker knows since when a scanner has had its problems. It is safe for concurrent use;
// the zero value is ready.
type Tracker struct {
	mu    sync.Mutex
	since map[key]time.Time
}

// Track sets Since of each problem without one to when Track first saw it. It forgets the
// problems that aren't among found.
func (t *Tracker) Track(now time.Time, found []Problem) []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := make(map[key]time.Time, len(found))
	for i := range found {
		p := &found[i]
		if p.Since.IsZero() {
			p.Since = now
			if before, there := t.since[p.key()]; there {
				p.Since = before
			}
		}
		since[p.key()] = p.Since
	}
	t.since = since
	return found
}
