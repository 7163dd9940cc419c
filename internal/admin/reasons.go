package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
)

// lateAfter is how long a due task may wait before it is a reason, as for the alert
// DuefleetTasksLate.
const lateAfter = time.Minute

// Kind is the subject of a reason.
type Kind string

// The kinds.
const (
	NoScanner     Kind = "no scanner"    // no scanner delivers.
	Unserved      Kind = "unserved"      // a scanner says why it doesn't serve a topic.
	Configuration Kind = "configuration" // a scanner refuses a document, or can't read its source.
	SourceAway    Kind = "source away"   // scanners can't read the source of topics.
	OtherSource   Kind = "other source"  // a scanner's settings wait while another source is in force.
	Paused        Kind = "paused"
	Retries       Kind = "retries" // tasks wait for another attempt.
	Late          Kind = "late"
	ParkedTasks   Kind = "parked"
	Unread        Kind = "unread" // no scanner can read the tasks' records.
	Stored        Kind = "stored" // a topic's data in Redis is wrong.
)

// Reason is one reason why the fleet is not healthy. Topic is "" if it isn't about one
// topic.
type Reason struct {
	Kind        Kind
	Topic, Text string
}

// String returns the reason with its topic, on one line.
func (r Reason) String() string {
	if r.Topic == "" {
		return r.Text
	}
	return fmt.Sprintf("topic %s: %s", r.Topic, r.Text)
}

// Reasons returns why the fleet is not healthy, nil if it is. The fleet needs a live
// scanner. A scanner is a reason if it has not applied its configuration. A topic is one
// if it has a note, parked tasks, or a task that has been due for a minute. now is the
// time of the reading.
func (s Status) Reasons(now time.Time) []Reason {
	var all []Reason
	live := balance.Live(s.Fleet)
	if len(live) == 0 {
		all = append(all, Reason{Kind: NoScanner, Text: "no scanner runs"})
	}
	all = append(all, otherSources(live)...)
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
			all = append(all, Reason{Kind: Late, Topic: t.Topic, Text: fmt.Sprintf("a task has been due for %s",
				late.Round(time.Second))})
		}
		if t.Parked > 0 {
			all = append(all, Reason{Kind: ParkedTasks, Topic: t.Topic, Text: fmt.Sprintf("%d tasks are parked", t.Parked)})
		}
	}
	for _, m := range live {
		for _, name := range slices.Sorted(maps.Keys(m.Errors)) {
			if text := m.Errors[name]; !told[text] && (name != "" || !m.Away) {
				all = append(all, Reason{Kind: Configuration, Text: "configuration: " + text})
				told[text] = true
			}
		}
	}
	return all
}

// otherSources returns the reasons why live scanners' own settings are not applied,
// each with those scanners.
func otherSources(live []balance.Member) (all []Reason) {
	members := map[string][]string{}
	for _, m := range live {
		if m.Refused != "" {
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
