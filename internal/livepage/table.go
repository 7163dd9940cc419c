package livepage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/operate"
)

// filled is a column with its rows' texts.
type filled struct {
	title       string
	cells       []string
	least, drop int
	right       bool
}

// fill returns columns with the texts of rows.
func fill[T any](columns []Column[T], rows []T, read time.Time) []filled {
	all := make([]filled, len(columns))
	for i, c := range columns {
		all[i] = filled{title: c.Title, least: c.least, right: c.Right, drop: c.drop}
		for _, row := range rows {
			all[i].cells = append(all[i].cells, c.Cell(row, read))
		}
	}
	return all
}

func (c filled) width() int {
	width := max(c.least, len([]rune(c.title)))
	for _, cell := range c.cells {
		width = max(width, len([]rune(cell)))
	}
	return width
}

// fitted returns the columns that fit into width, with gap characters between them. If no
// more columns can be left out, it cuts the first column to no less than eight characters.
func fitted(all []filled, gap, width int) []filled {
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
func tableLines(all []filled, gap, width int) []string {
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
		columns := fill(TopicColumns(), all[first:last], p.read)
		columns[0].title, columns[0].least = title, longest(all)
		lines := tableLines(columns, 1, p.width-marks)
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

// fleet returns the table of the members.
func (p *page) fleet() section {
	if len(p.status.Fleet) == 0 {
		return fixed([]string{"fleet: no scanner runs"})
	}
	const indent = "  "
	lines := tableLines(fill(MemberColumns(), InOrder(p.status.Fleet), p.read), 2, p.width-len(indent))
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	return fixed(append([]string{"fleet:"}, lines...))
}
