package main

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

// statusLines renders a status as lines of text: warnings, each topic, its shards if
// shards is set, and the members.
func statusLines(s operate.Status, shards bool, now time.Time) []string {
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

// warning renders a warning about durability as a line.
func warning(h string) string {
	return "redis is set to lose tasks that it acknowledged: " + cli.OneLine(h)
}

func printTopic(w io.Writer, t operate.TopicStatus, shards bool, now time.Time) {
	if t.Phase == shard.Migrating {
		fmt.Fprintf(w, "%s: %s\n", headline(t), progress(t, now))
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
			row(w, fmt.Sprint(v.Shard), v, dueText(v.Oldest, now))
		}
	}
	row(w, "all", total(t), dueText(t.Oldest, now))
	fmt.Fprintln(w)
}

// headline returns a topic's name and placement.
func headline(t operate.TopicStatus) string {
	phase := cmp.Or(string(t.Phase), "not known")
	if t.Phase == shard.Migrating {
		phase = migrating(t)
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

// migrating describes a change of M under way.
func migrating(t operate.TopicStatus) string {
	return fmt.Sprintf("migrating from %d", t.Previous)
}

// progress describes the progress of a change of M on one line.
func progress(t operate.TopicStatus, now time.Time) string {
	c := t.Change
	text := fmt.Sprintf("%d of %d shards clean, %d tasks moved, about %d left, %.0f/s",
		c.Clean, t.Polled, c.Moved, c.Misplaced, c.Rate)
	if !c.End.IsZero() {
		text += ", end " + relative(c.End, now)
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

// dueText is relative, or a dash for the zero time.
func dueText(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return relative(t, now)
}

// timeFormat is RFC 3339 in UTC, to the millisecond.
const timeFormat = "2006-01-02T15:04:05.000Z"

// relative formats a time in UTC, and its distance from now.
func relative(t, now time.Time) string {
	at := t.UTC().Format(timeFormat)
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", at, -d)
	}
	return fmt.Sprintf("%s (in %s)", at, d)
}

// started formats the start time of a member, "-" if the member hasn't reported it yet.
func started(m balance.Member) string {
	if m.Started.IsZero() {
		return "-"
	}
	return m.Started.Format(time.RFC3339)
}

// alive returns "live" or "dead".
func alive(m balance.Member) string {
	if m.Alive {
		return "live"
	}
	return "dead"
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

func printFleet(w io.Writer, fleet []balance.Member, now time.Time) {
	fmt.Fprintln(w, "fleet:")
	fmt.Fprintln(w, "  INSTANCE\tSTATE\tHEARTBEAT\tSTARTED\tVERSION\tADMIN\tCONFIG")
	for _, m := range inOrder(fleet) {
		fmt.Fprintf(w, "  %s\t%s\t%s ago\t%s\t%s\t%s\t%s\n", m.Instance, alive(m),
			max(now.Sub(m.Heartbeat), 0).Round(time.Second), started(m), m.Version, m.Admin, configuration(m))
	}
	if len(fleet) == 0 {
		fmt.Fprintln(w, "  "+strings.Repeat("-", 3)+" no scanner runs")
	}
}
