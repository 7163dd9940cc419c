package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
)

// print prints a status as text: problems, the topics that v selects, and the members.
func (v statusView) print(out io.Writer, s admin.Status, now time.Time) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	printProblems(w, s)
	switch {
	case len(s.Topics) == 0:
		fmt.Fprintln(w, "no topics: no scanner has served one under this Redis prefix yet")
	case v.all || v.problem != "" || len(s.Topics) > fewTopics && !v.shards:
		v.printLines(w, s, now)
	default:
		for _, t := range s.Topics {
			printTopic(w, t, v.shards, now)
		}
	}
	printFleet(w, s.Fleet, now)
	return w.Flush()
}

// printProblems prints the problems that aren't shown with a topic.
func printProblems(w io.Writer, s admin.Status) {
	lines := s.Lines()
	for _, line := range lines {
		fmt.Fprintln(w, "! "+cli.OneLine(line))
	}
	if len(lines) > 0 {
		fmt.Fprintln(w)
	}
}

func printTopic(w io.Writer, t admin.TopicStatus, shards bool, now time.Time) {
	fmt.Fprintln(w, headline(t))
	if t.Change != nil {
		fmt.Fprintf(w, "  %s\n", changeText(t, now))
	}
	for _, line := range paceLines(t) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, n := range t.Notes {
		fmt.Fprintf(w, "  ! %s\n", cli.OneLine(n))
	}
	fmt.Fprintln(w, columns)
	for _, v := range t.PerShard {
		if shards {
			row(w, fmt.Sprint(v.Shard), v, cli.Relative(v.Oldest, now))
		}
	}
	row(w, "all", total(t), cli.Relative(t.Oldest, now))
	fmt.Fprintln(w)
}

// headline returns a topic's name and placement.
func headline(t admin.TopicStatus) string {
	phase := cmp.Or(string(t.Phase), "not known")
	if t.Phase == shard.Migrating {
		phase = fmt.Sprintf("migrating from %d", t.Previous)
	}
	return fmt.Sprintf("topic %s: M %d, epoch %d, %s", t.Topic, t.Shards, t.Epoch, phase)
}

// total returns the sums over all shards of topics.
func total(topics ...admin.TopicStatus) (sum shard.Stats) {
	for _, t := range topics {
		sum.Pending += t.Pending
		sum.Backlog += t.Backlog
		sum.Leased += t.Leased
		sum.Parked += t.Parked
		if sum.Oldest.IsZero() || !t.Oldest.IsZero() && t.Oldest.Before(sum.Oldest) {
			sum.Oldest = t.Oldest
		}
	}
	return sum
}

// paceLines returns lines with a topic's settings, their source, and its throughput and
// lateness in the last minute.
func paceLines(t admin.TopicStatus) (lines []string) {
	if t.Source != "" {
		lines = append(lines, "source: "+cli.OneLine(t.Source))
	}
	if len(t.Settings) > 0 {
		settings := make([]string, 0, len(t.Settings))
		for _, key := range slices.Sorted(maps.Keys(t.Settings)) {
			settings = append(settings, key+"="+t.Settings[key])
		}
		lines = append(lines, "settings: "+cli.OneLine(strings.Join(settings, " ")))
	}
	pace := "nothing forwarded"
	if t.PerSecond > 0 {
		pace = fmt.Sprintf("%s forwarded a second, lateness p50 %s, p99 %s", perSecond(t.PerSecond), lateness(t.Median),
			lateness(t.Worst))
	}
	lines = append(lines, "last minute: "+pace)
	if t.Limited {
		lines = append(lines, fmt.Sprintf("rate: %d a second over the fleet holds back %d due tasks", t.Rate, t.Backlog))
	}
	return lines
}

// perSecond formats a rate with three significant digits.
func perSecond(rate float64) string {
	if rate >= 1000 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.3g", rate)
}

// lateness formats seconds with two significant digits.
func lateness(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	unit := time.Microsecond
	for 100*unit <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// changeText describes the progress of a change of M on one line.
func changeText(t admin.TopicStatus, now time.Time) string {
	c := t.Change
	text := fmt.Sprintf("%d of %d shards clean, %d tasks moved, about %d left, %.0f/s",
		c.Clean, t.Polled, c.Moved, c.Misplaced, c.Rate)
	if !c.End.IsZero() {
		text += ", end " + cli.Relative(c.End, now)
	}
	return text
}

// columns are the titles of row's columns.
const columns = "  SHARD\tSTORED\tWAITING\tBACKLOG\tLEASED\tPARKED\tOLDEST DUE"

// row prints the contents of a shard. STORED is the sum of WAITING, BACKLOG, LEASED and
// PARKED. WAITING tasks aren't due yet, or are retried later.
func row(w io.Writer, name string, v shard.Stats, oldest string) {
	fmt.Fprintf(w, "  %s\t%s\n", name, cells(v, oldest))
}

// cells returns the columns from STORED to OLDEST DUE.
func cells(v shard.Stats, oldest string) string {
	waiting := v.Pending - v.Backlog - v.Leased - v.Parked
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%s", v.Pending, waiting, v.Backlog, v.Leased, v.Parked, oldest)
}

func printFleet(w io.Writer, fleet []balance.Member, now time.Time) {
	fmt.Fprintln(w, "fleet:")
	fmt.Fprintln(w, "  INSTANCE\tSTATE\tBEAT\tUP\tCONFIG\tVERSION\tADMIN")
	for _, m := range inOrder(fleet) {
		state, up := "dead", "-" // a member reports its start a little after its first heartbeat
		if m.Alive {
			state = "live"
		}
		if !m.Started.IsZero() {
			up = age(now.Sub(m.Started))
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Instance, state, age(now.Sub(m.Heartbeat)), up,
			configuration(m), m.Version, m.Admin)
	}
	if len(fleet) == 0 {
		fmt.Fprintln(w, "  --- no scanner runs")
	}
}

// configuration describes which documents a member has applied, and how many it can't
// apply.
func configuration(m balance.Member) string {
	text := fmt.Sprintf("index %d", m.Applied)
	if m.Source != "" {
		text = m.Source + ", " + text
	}
	if m.Refused != "" {
		text += ", waits for another source"
	}
	if len(m.Errors) > 0 {
		text += fmt.Sprintf(", %d errors", len(m.Errors))
	}
	return text
}

// inOrder sorts members: live ones first, by name; then dead ones, the latest heartbeat
// first.
func inOrder(fleet []balance.Member) []balance.Member {
	return slices.SortedStableFunc(slices.Values(fleet), func(a, b balance.Member) int {
		switch {
		case a.Alive && b.Alive:
			return strings.Compare(a.Instance, b.Instance)
		case a.Alive || b.Alive:
			return map[bool]int{true: -1, false: 1}[a.Alive]
		}
		return b.Heartbeat.Compare(a.Heartbeat)
	})
}

// age formats a duration in two units, 0 if negative.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%ds", d/time.Second)
	}
}
