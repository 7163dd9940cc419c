package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
)

// lateAfter is from when on a task that is due and has not left is a reason to look, as
// for the alert DuefleetTasksLate.
const lateAfter = time.Minute

// Kind is what a reason is about.
type Kind string

// The kinds.
const (
	NoScanner     Kind = "no scanner"    // nobody delivers
	Unserved      Kind = "unserved"      // a scanner says why it doesn't serve a topic
	Configuration Kind = "configuration" // a scanner refuses a document, or can't read its source
	SourceAway    Kind = "source away"   // scanners can't read the source of topics
	OtherSource   Kind = "other source"  // a scanner's settings wait, another source's are in force
	Paused        Kind = "paused"
	Retries       Kind = "retries" // tasks wait for another attempt
	Late          Kind = "late"
	ParkedTasks   Kind = "parked"
	Unread        Kind = "unread" // tasks whose records no scanner reads
	Stored        Kind = "stored" // what Redis holds of a topic isn't as it should be
)

// Reason is one reason why the fleet is not healthy. Topic is whose, "" where it is not
// one topic's.
type Reason struct {
	Kind        Kind
	Topic, Text string
}

// String is the reason with its topic, for one line.
func (r Reason) String() string {
	if r.Topic == "" {
		return r.Text
	}
	return fmt.Sprintf("topic %s: %s", r.Topic, r.Text)
}

// Reasons say why the fleet is not healthy, none if it is: no scanner lives, one has
// configurations that it did not apply, a topic has a note, tasks that are parked, or one
// that has been due for a minute. now is the time of the reading.
func (s Status) Reasons(now time.Time) []Reason {
	var all []Reason
	if !slices.ContainsFunc(s.Fleet, func(m balance.Member) bool { return m.Alive }) {
		all = append(all, Reason{Kind: NoScanner, Text: "no scanner runs"})
	}
	all = append(all, otherSources(s.Fleet)...)
	for _, text := range s.Degraded {
		all = append(all, Reason{Kind: SourceAway, Text: text})
	}
	told := map[string]bool{}
	for _, t := range s.Topics {
		for _, n := range t.Notes {
			all = append(all, Reason{Kind: cmp.Or(t.kinds[n], Stored), Topic: t.Topic, Text: n})
			told[n] = true
		}
		if late := now.Sub(t.Oldest); !t.Oldest.IsZero() && late > lateAfter {
			all = append(all, Reason{Kind: Late, Topic: t.Topic, Text: fmt.Sprintf("a task has been due for %s", late.Round(time.Second))})
		}
		if t.Parked > 0 {
			all = append(all, Reason{Kind: ParkedTasks, Topic: t.Topic, Text: fmt.Sprintf("%d tasks are parked", t.Parked)})
		}
	}
	for _, m := range s.Fleet {
		for _, name := range slices.Sorted(maps.Keys(m.Errors)) {
			if text := m.Errors[name]; m.Alive && !told[text] && (name != "" || !m.Away) {
				all = append(all, Reason{Kind: Configuration, Text: "configuration: " + text})
				told[text] = true
			}
		}
	}
	return all
}

// otherSources are the reasons for which living scanners' own settings are not applied,
// each with those scanners.
func otherSources(fleet []balance.Member) (all []Reason) {
	members := map[string][]string{}
	for _, m := range fleet {
		if m.Alive && m.Refused != "" {
			members[m.Refused] = append(members[m.Refused], m.Instance)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(members)) {
		who := "scanner "
		if len(members[why]) > 1 {
			who = "scanners "
		}
		slices.Sort(members[why])
		all = append(all, Reason{Kind: OtherSource, Text: who + strings.Join(members[why], ", ") + ": " + why})
	}
	return all
}
