package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostFindings is the most findings of one kind that a Report names. It counts all.
const mostFindings = 20

// Report is the result of Ledger.Check. Each wrong message or task counts in one place.
// Only an early one counts in a second place as well.
type Report struct {
	// Promised is the number of versions that had to arrive; Delivered of them did.
	Promised, Delivered int
	// Lost is the number of promised versions that did not arrive.
	Lost int
	// Duplicated is the number of arrivals beyond the one that a version may have.
	Duplicated int
	// Unmarked is the number of messages that lack the header x-duefleet-redelivered and
	// should have it. Only one message of a version may lack it.
	Unmarked int
	// Early is the number of messages that arrived before their due time.
	Early int
	// Cancelled and Outdated count arrivals of versions that a call had ended before
	// their due time.
	Cancelled, Outdated int
	// Unknown is the number of messages without a matching call: nobody scheduled the
	// task, or its due time or payload differ.
	Unknown int

	// Redelivered is the number of arrivals that the scanner marked as possible repeats.
	Redelivered int
	// Requeued is the number of arrivals that the broker repeated because the consumer
	// hadn't acknowledged them. They count nowhere else.
	Requeued int
	// Optional is the number of versions that may or may not arrive; Arrived of them did.
	Optional, Arrived int

	// Lateness holds arrival minus due of all arrivals, in ascending order.
	Lateness Lateness
	// First and Last are the times of the first and the last arrival.
	First, Last time.Time
	// Findings names some of the mistakes, for debugging.
	Findings []Finding

	named map[string]int // number of findings by kind
}

// Finding is one broken promise: a message that must arrive and did not, or one that must
// not have arrived.
type Finding struct {
	Key
	// One of lost, duplicated, early, cancelled, outdated and unknown.
	What string
	// Due is the due time of the version.
	Due time.Time
	// Redelivered is true for an arrival that the scanner marked as a repeat.
	Redelivered bool
}

func (f Finding) String() string {
	mark := ""
	if f.Redelivered {
		mark = ", marked as redelivered"
	}
	return fmt.Sprintf("%s: topic %s, ID %q, due %s%s", f.What, f.Topic, f.ID, f.Due.UTC().Format("15:04:05.000"), mark)
}

// Check compares what was promised with what has arrived so far.
func (l *Ledger) Check() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{named: map[string]int{}}
	for k, a := range l.tasks {
		r.add(k, a)
	}
	slices.Sort(r.Lateness)
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.What, b.What), a.Due.Compare(b.Due), strings.Compare(a.ID, b.ID))
	})
	return r
}

// share groups all versions of a task with the same identity, and their arrivals. A
// message doesn't tell which of these versions it is.
type share struct {
	live, possible, cancelled, replaced int
	arrivals                            []arrival
}

func (r *Report) add(k Key, a *account) {
	shares := map[identity]*share{}
	of := func(id identity) *share {
		if shares[id] == nil {
			shares[id] = &share{}
		}
		return shares[id]
	}
	for _, v := range a.versions {
		s := of(v.identity)
		switch v.state {
		case live:
			s.live++
		case possible:
			s.possible++
		case cancelled:
			s.cancelled++
		case replaced:
			s.replaced++
		}
	}
	for _, m := range a.arrivals {
		s := of(a.made(m.identity))
		if m.requeued && len(s.arrivals) > 0 {
			r.Requeued++
			continue
		}
		s.arrivals = append(s.arrivals, m)
		r.arrived(k, m)
	}
	for id, s := range shares {
		r.settle(k, id, s)
	}
}

// arrived adds one message to the statistics, and finds early ones.
func (r *Report) arrived(k Key, m arrival) {
	due := time.UnixMilli(m.dueMillis)
	r.Lateness = append(r.Lateness, m.at.Sub(due))
	if m.at.Before(due) {
		r.Early++
		r.find(k, "early", m)
	}
	if m.redelivered {
		r.Redelivered++
	}
	if r.First.IsZero() || m.at.Before(r.First) {
		r.First = m.at
	}
	if m.at.After(r.Last) {
		r.Last = m.at
	}
}

// settle compares a share's arrivals with its versions.
func (r *Report) settle(k Key, id identity, s *share) {
	n := len(s.arrivals)
	delivered := min(n, s.live)
	arrived := min(n-delivered, s.possible)
	r.Promised += s.live
	r.Delivered += delivered
	r.Optional += s.possible
	r.Arrived += arrived
	for range s.live - delivered {
		r.Lost++
		r.find(k, "lost", arrival{identity: id})
	}
	for _, m := range s.arrivals[delivered+arrived:] {
		what, counter := s.excess(r)
		*counter++
		r.find(k, what, m)
	}
	if len(s.arrivals) > delivered+arrived {
		r.Unmarked += max(0, s.unmarked()-1)
	}
}

// unmarked counts the arrivals that are not marked as possible repeats.
func (s *share) unmarked() int {
	n := 0
	for _, m := range s.arrivals {
		if !m.redelivered {
			n++
		}
	}
	return n
}

// excess returns what kind of mistake an arrival is that no version allows, and its
// counter.
func (s *share) excess(r *Report) (what string, counter *int) {
	switch {
	case s.live+s.possible > 0:
		return "duplicated", &r.Duplicated
	case s.cancelled > 0:
		return "cancelled", &r.Cancelled
	case s.replaced > 0:
		return "outdated", &r.Outdated
	}
	return "unknown", &r.Unknown
}

func (r *Report) find(k Key, what string, m arrival) {
	r.named[what]++
	if r.named[what] <= mostFindings {
		r.Findings = append(r.Findings, Finding{k, what, time.UnixMilli(m.dueMillis), m.redelivered})
	}
}

// Err returns nil if every promised version arrived exactly once, late or not, and
// nothing else arrived. Otherwise the error names some of the findings.
func (r Report) Err() error {
	wrong := []struct {
		what string
		n    int
	}{
		{"lost", r.Lost}, {"duplicated", r.Duplicated}, {"early", r.Early},
		{"delivered after they were cancelled", r.Cancelled},
		{"of a version that was replaced", r.Outdated}, {"unknown", r.Unknown},
	}
	var found []string
	for _, w := range wrong {
		if w.n > 0 {
			found = append(found, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	if len(found) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("%s of %d promised", strings.Join(found, ", "), r.Promised)}
	for _, f := range r.Findings {
		lines = append(lines, f.String())
	}
	return errors.New(strings.Join(lines, "\n  "))
}

// Rate returns arrivals per second between the first and the last.
func (r Report) Rate() float64 {
	seconds := r.Last.Sub(r.First).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(len(r.Lateness)) / seconds
}
