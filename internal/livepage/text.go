package livepage

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// noTopics is shown in place of topics if there are none.
const noTopics = "no topics: no scanner has served one under this Redis prefix yet"

// Lines renders a status as lines of text: warnings, each topic, its shards if
// shards is set, and the members.
func Lines(s operate.Status, shards bool, now time.Time) []string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 2, 0, 2, ' ', 0)
	printWarnings(w, s)
	for _, t := range s.Topics {
		printTopic(w, t, shards, now)
	}
	if len(s.Topics) == 0 {
		fmt.Fprintln(w, noTopics)
	}
	printFleet(w, s.Fleet, now)
	_ = w.Flush() // into memory: no error
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// printWarnings prints the warnings about durability, and why the fleet is degraded.
func printWarnings(w io.Writer, s operate.Status) {
	for _, h := range s.Warnings {
		fmt.Fprintln(w, "! "+warning(h))
	}
	for _, d := range s.Degraded {
		fmt.Fprintln(w, "! degraded: "+cli.OneLine(d))
	}
	if len(s.Warnings)+len(s.Degraded) > 0 {
		fmt.Fprintln(w)
	}
}

func printTopic(w io.Writer, t operate.TopicStatus, shards bool, now time.Time) {
	if t.Phase == shard.Migrating {
		fmt.Fprintf(w, "%s: %s\n", headline(t), Progress(t, now))
	} else {
		fmt.Fprintln(w, headline(t))
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
func headline(t operate.TopicStatus) string {
	phase := cmp.Or(string(t.Phase), "not known")
	if t.Phase == shard.Migrating {
		phase = fmt.Sprintf("migrating from %d", t.Previous)
	}
	return fmt.Sprintf("topic %s: M %d, epoch %d, %s", t.Topic, t.Shards, t.Epoch, phase)
}

// total returns the sums over all shards of a topic.
func total(t operate.TopicStatus) shard.Stats {
	return shard.Stats{Pending: t.Pending, Backlog: t.Backlog, Leased: t.Leased, Parked: t.Parked, Oldest: t.Oldest}
}

// paceLines returns lines with a topic's settings, their source, and its throughput and
// lateness in the last minute.
func paceLines(t operate.TopicStatus) (lines []string) {
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

// Progress describes the progress of a change of M on one line.
func Progress(t operate.TopicStatus, now time.Time) string {
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
	waiting := v.Pending - v.Backlog - v.Leased - v.Parked
	fmt.Fprintf(w, "  %s\t%d\t%d\t%d\t%d\t%d\t%s\n", name, v.Pending, waiting, v.Backlog, v.Leased, v.Parked, oldest)
}

// started formats the start time of a member, "-" if the member hasn't reported it yet.
func started(m balance.Member) string {
	if m.Started.IsZero() {
		return "-"
	}
	return m.Started.Format(time.RFC3339)
}

func printFleet(w io.Writer, fleet []balance.Member, now time.Time) {
	fmt.Fprintln(w, "fleet:")
	fmt.Fprintln(w, "  INSTANCE\tSTATE\tHEARTBEAT\tSTARTED\tVERSION\tADMIN\tCONFIG")
	for _, m := range InOrder(fleet) {
		fmt.Fprintf(w, "  %s\t%s\t%s ago\t%s\t%s\t%s\t%s\n", m.Instance, alive(m),
			max(now.Sub(m.Heartbeat), 0).Round(time.Second), started(m), m.Version, m.Admin, configuration(m))
	}
	if len(fleet) == 0 {
		fmt.Fprintln(w, "  "+strings.Repeat("-", 3)+" no scanner runs")
	}
}
