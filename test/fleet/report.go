package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostFindings bounds how many findings of a kind a Report names; it counts them
// all.
const mostFindings = 20

// Report is what a Ledger found. Of what is wrong, each message or task counts
// in one place, except that an early one counts elsewhere too.
type Report struct {
	// Promised versions had to arrive; Delivered of them did.
	Promised, Delivered int
	// Lost were promised and did not arrive.
	Lost int
	// Duplicated are arrivals beyond the one that a version has.
	Duplicated int
	// Unmarked are those of the Duplicated that no mark explains: of all messages
	// of one version, one at most may lack x-duefleet-redelivered.
	Unmarked int
	// Early arrived before they were due.
	Early int
	// Cancelled and Outdated arrived although a call that ended them had
	// returned before they were due.
	Cancelled, Outdated int
	// Unknown are messages that no call accounts for: a task nobody scheduled,
	// or one with another due time or payload.
	Unknown int

	// Redelivered arrivals were marked by the scanner as possible repeats.
	Redelivered int
	// Requeued arrivals came again since the consumer had not acknowledged
	// them, and are counted nowhere else.
	Requeued int
	// Optional versions might arrive or not; Arrived of them did.
	Optional, Arrived int

	// Lateness of arrivals: arrival minus due, in ascending order.
	Lateness Lateness
	// First and Last arrival.
	First, Last time.Time
	// Findings are some of what is wrong, for whoever looks into it.
	Findings []Finding

	named map[string]int // findings by what they are
}

// Finding is one thing that is wrong.
type Finding struct {
	Key
	// What it is: lost, duplicated, early, cancelled, outdated or unknown.
	What string
	// Due time by the task's version.
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

// Check holds what was promised against what arrived so far.
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

// share is all versions of a task that a message can't tell apart, and their
// arrivals.
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

// arrived counts what is said about one message alone.
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

// settle holds a share's arrivals against its versions.
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

// excess is what an arrival is that no version allows.
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

// Err is nil if every promised version arrived once, on time or late, and
// nothing else did. It names some of what is wrong.
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

// Rate is arrivals a second between the first and the last.
func (r Report) Rate() float64 {
	seconds := r.Last.Sub(r.First).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(len(r.Lateness)) / seconds
}
