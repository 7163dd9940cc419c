package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// pageColumn is a column of a table on the page.
type pageColumn struct {
	title string
	cells []string
	least int  // minimal width in characters, so that changing numbers don't move columns
	right bool // align to the right, for numbers
	// drop is the order in which columns are left out if the terminal is too narrow: the
	// smallest first. A column with 0 always stays.
	drop int
}

func (c pageColumn) width() int {
	width := max(c.least, len([]rune(c.title)))
	for _, cell := range c.cells {
		width = max(width, len([]rune(cell)))
	}
	return width
}

// fitted returns the columns that fit into width, with gap characters between them. If no
// more columns can be left out, it cuts the first column to no less than eight characters.
func fitted(all []pageColumn, gap, width int) []pageColumn {
	all = slices.Clone(all)
	total := func() (n int) {
		for _, c := range all {
			n += c.width() + gap
		}
		return n - gap
	}
	for total() > width {
		at := -1
		for i, c := range all {
			if c.drop > 0 && (at < 0 || c.drop < all[at].drop) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		all = slices.Delete(all, at, at+1)
	}
	if over := total() - width; over > 0 {
		most := max(8, all[0].width()-over)
		all[0].least, all[0].cells = 0, slices.Clone(all[0].cells)
		for i, cell := range all[0].cells {
			all[0].cells[i] = cut(cell, most)
		}
	}
	return all
}

// tableLines renders the columns with their titles as lines.
func tableLines(all []pageColumn, gap, width int) []string {
	all = fitted(all, gap, width)
	lines := make([]string, 1+len(all[0].cells))
	for i, c := range all {
		for at, cell := range append([]string{c.title}, c.cells...) {
			if i > 0 {
				lines[at] += strings.Repeat(" ", gap)
			}
			if c.right {
				lines[at] += fmt.Sprintf("%*s", c.width(), cell)
			} else {
				lines[at] += fmt.Sprintf("%-*s", c.width(), cell)
			}
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// topicsWeight is how many lines the topics get for each line of another part if the
// terminal is small. The rest of the page is mostly about the chosen topic.
const topicsWeight = 3

// topics returns the table of all topics, or if there is no room of the topics around the
// chosen one.
func (p *page) topics() section {
	all, at := p.status.Topics, p.chosen()
	return section{want: 1 + len(all), weight: topicsWeight, draw: func(n int) []string {
		n = max(1, n-1)
		first := max(0, min(at-n/2, len(all)-n))
		last := min(len(all), first+n)
		title := "TOPIC"
		if last-first < len(all) {
			title = fmt.Sprintf("%d-%d/%d", first+1, last, len(all))
		}
		const marks = 3
		lines := tableLines(p.topicColumns(title, all[first:last], longest(all)), 1, p.width-marks)
		lines[0] = strings.Repeat(" ", marks) + lines[0]
		for i := first; i < last; i++ {
			lines[1+i-first] = mark(all[i], i == at) + " " + lines[1+i-first]
		}
		return lines
	}}
}

// longest returns the length of the longest topic name.
func longest(all []operate.TopicStatus) (n int) {
	for _, t := range all {
		n = max(n, len(t.Topic))
	}
	return n
}

// mark returns two characters: > or a blank for the chosen topic, and ! or a blank for a
// topic with problems.
func mark(t operate.TopicStatus, chosen bool) string {
	marks := []byte("  ")
	if chosen {
		marks[0] = '>'
	}
	if len(t.Notes) > 0 {
		marks[1] = '!'
	}
	return string(marks)
}

// topicColumns returns the columns of the table of topics. Columns whose content is also
// in other lines of the page are left out first.
func (p *page) topicColumns(title string, topics []operate.TopicStatus, name int) []pageColumn {
	all := []pageColumn{
		{title: title, least: name},
		{title: "M", least: 4, right: true},
		{title: "STATE", least: 9},
		{title: "FWD/S", least: 6, right: true, drop: 4},
		{title: "P50", least: 6, right: true, drop: 1},
		{title: "P99", least: 6, right: true, drop: 2},
		{title: "STORED", least: 6, right: true},
		{title: "BACKLOG", right: true},
		{title: "RETRY", least: 6, right: true, drop: 3},
		{title: "PARKED", right: true},
		{title: "LATE", least: 6, right: true},
		{title: "NEXT DUE", right: true},
	}
	for _, t := range topics {
		forwarded, median, worst := "-", "-", "-"
		if t.PerSecond > 0 {
			forwarded, median, worst = perSecond(t.PerSecond), lateness(t.Median), lateness(t.Worst)
		}
		late, next := p.due(t)
		for i, cell := range []string{
			t.Topic, fmt.Sprint(t.Shards), stateOf(t), forwarded, median, worst,
			short(t.Pending), short(t.Backlog), short(t.Retrying), short(t.Parked), late, next,
		} {
			all[i].cells = append(all[i].cells, cell)
		}
	}
	return all
}

// stateOf returns "paused" or "limited" for such a topic, else its phase. A phase of
// migrating has precedence.
func stateOf(t operate.TopicStatus) string {
	switch {
	case t.Phase == shard.Migrating:
	case t.Paused:
		return "paused"
	case t.Limited:
		return "limited"
	}
	return cmp.Or(string(t.Phase), "not known")
}

// due returns how long the earliest task has been due, and when the next task is due.
func (p *page) due(t operate.TopicStatus) (late, next string) {
	switch {
	case t.Oldest.IsZero():
		return "-", "-"
	case t.Oldest.After(p.read):
		return "-", age(t.Oldest.Sub(p.read))
	}
	return age(p.read.Sub(t.Oldest)), "now"
}

// fleet returns the table of the members.
func (p *page) fleet() section {
	if len(p.status.Fleet) == 0 {
		return fixed([]string{"fleet: no scanner runs"})
	}
	all := []pageColumn{
		{title: "INSTANCE"}, {title: "STATE"}, {title: "BEAT", least: 6, right: true},
		{title: "UP", least: 6, right: true, drop: 2},
		{title: "CONFIG"}, {title: "VERSION", drop: 3}, {title: "ADMIN", drop: 1},
	}
	for _, m := range inOrder(p.status.Fleet) {
		for i, cell := range []string{m.Instance, alive(m), age(p.read.Sub(m.Heartbeat)), p.up(m), configuration(m),
			m.Version, m.Admin} {
			all[i].cells = append(all[i].cells, cell)
		}
	}
	const indent = "  "
	lines := tableLines(all, 2, p.width-len(indent))
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	return fixed(append([]string{"fleet:"}, lines...))
}

// up returns how long a member has run.
func (p *page) up(m balance.Member) string {
	if m.Started.IsZero() {
		return "-"
	}
	return age(p.read.Sub(m.Started))
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
