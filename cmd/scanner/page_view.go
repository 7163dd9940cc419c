package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// leastWidth and leastHeight are the smallest terminal that has room for something of
	// each part of the page.
	leastWidth, leastHeight = 60, 16
	// cutMark ends a line that is longer than the terminal is wide.
	cutMark = ">"
)

// section is a part of the page: so many lines if there is room for them, else those that
// draw makes of n, which is at least 1. Where room is scarce it gets weight lines for each
// line of a section without one.
type section struct {
	want   int
	weight int
	draw   func(n int) []string
}

// lines are the page at a moment, one for each line of the terminal, none longer than it
// is wide. They say all without colors.
func (p *page) lines(now time.Time) []string {
	head := p.head(now)
	room := max(0, p.height-len(head)-1)
	out := head
	parts := p.sections()
	shares := divide(parts, room)
	spaced := sum(shares)+len(parts)-1 <= room
	for i, part := range parts {
		if shares[i] == 0 {
			continue
		}
		if i > 0 && spaced {
			out = append(out, "")
		}
		out = append(out, part.draw(shares[i])...)
	}
	for len(out) < p.height-1 {
		out = append(out, "")
	}
	out = append(out[:max(0, min(len(out), p.height-1))], p.foot())
	for i, line := range out {
		out[i] = cut(line, p.width)
	}
	return out[:min(len(out), max(0, p.height))]
}

// sections are the parts of the page between its head and its foot.
func (p *page) sections() []section {
	if p.read.IsZero() {
		return nil
	}
	if len(p.status.Topics) == 0 {
		return []section{p.troubles(), fixed([]string{noTopics}), p.fleet()}
	}
	t := p.status.Topics[p.chosen()]
	if p.shards {
		return []section{p.about(t), p.shardMap(t), p.shardTable(t)}
	}
	return []section{p.troubles(), p.topics(), p.about(t), p.shardMap(t), p.fleet()}
}

// room is how many shards the table of shards has lines for, 1 at least.
func (p *page) room(now time.Time) int {
	parts := p.sections()
	if !p.shards || len(parts) == 0 {
		return max(1, p.height/2)
	}
	shares := divide(parts, max(0, p.height-len(p.head(now))-1))
	return max(1, shares[len(shares)-1]-1) // without the line of its columns
}

// divide gives each part its share of a number of lines: a line each in turn, or by its
// weight, until all have what they want or nothing is left.
func divide(parts []section, lines int) []int {
	shares := make([]int, len(parts))
	for given := true; given; {
		given = false
		for i, part := range parts {
			if n := min(max(part.weight, 1), lines, part.want-shares[i]); n > 0 {
				shares[i] += n
				lines -= n
				given = true
			}
		}
	}
	return shares
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

// fixed is a part whose lines are these; of more than there is room for the last are
// counted.
func fixed(lines []string) section {
	return section{want: len(lines), draw: func(n int) []string {
		if n >= len(lines) {
			return lines
		}
		return append(slices.Clone(lines[:n-1]), fmt.Sprintf("  ... %d more", len(lines)-n+1))
	}}
}

// head says when what is shown was read, and why there is nothing newer.
func (p *page) head(now time.Time) (lines []string) {
	pace := fmt.Sprintf("every %s", p.every)
	if since := now.Sub(p.asked); !p.asked.IsZero() && since >= time.Second {
		pace = "reading for " + age(since)
	}
	if p.read.IsZero() {
		lines = []string{"duefleet: nothing read yet, " + pace}
	} else {
		live := 0
		for _, m := range p.status.Fleet {
			if m.Alive {
				live++
			}
		}
		lines = []string{fmt.Sprintf("duefleet: %s at %s (%s ago), %s; %d of %d scanners live",
			counted(len(p.status.Topics), "topic"), p.read.UTC().Format("15:04:05Z"), age(now.Sub(p.read)), pace, live, len(p.status.Fleet))}
	}
	if p.failed != "" {
		text := "! not read: " + cli.OneLine(p.failed)
		if !p.read.IsZero() {
			text = fmt.Sprintf("! not read for %s, and shown as it was: %s", age(now.Sub(p.read)), cli.OneLine(p.failed))
		}
		lines = append(lines, wrap(text, p.width)...)
	}
	return lines
}

// foot names the keys, and says that the terminal is too small.
func (p *page) foot() string {
	if p.width < leastWidth || p.height < leastHeight {
		return fmt.Sprintf("cut: %dx%d is small, %dx%d will do; q ends", p.width, p.height, leastWidth, leastHeight)
	}
	if p.shards {
		return "q ends | up, down, page up, page down: shards | enter: all topics"
	}
	return "q ends | up, down: choose a topic | enter: its shards"
}

// troubles are what is wrong in the fleet: what may cost tasks first, and then each reason
// once, with the topics it holds for.
func (p *page) troubles() section {
	var lines []string
	for _, h := range p.status.Hazards {
		lines = append(lines, wrap("! "+hazard(h), p.width)...)
	}
	topics := map[string][]string{}
	var texts []string
	for _, r := range p.status.Reasons(p.read) {
		if _, told := topics[r.Text]; !told {
			texts = append(texts, r.Text)
		}
		topics[r.Text] = append(topics[r.Text], r.Topic)
	}
	for _, text := range texts {
		lines = append(lines, wrap("! "+whose(topics[text])+cli.OneLine(text), p.width)...)
	}
	if len(lines) == 0 {
		lines = []string{"healthy"}
	}
	return fixed(lines)
}

// whose names topics in front of what holds for all of them; of many some are counted.
func whose(topics []string) string {
	const most = 3
	switch n := len(topics); {
	case topics[0] == "":
		return ""
	case n == 1:
		return "topic " + topics[0] + ": "
	case n > most:
		return fmt.Sprintf("topics %s and %d more: ", strings.Join(topics[:most], ", "), n-most)
	default:
		return "topics " + strings.Join(topics, ", ") + ": "
	}
}

// about is the chosen topic: its placement, the change of M that is under way, its
// settings and its pace. Its notes are among the troubles, but where its shards are shown.
func (p *page) about(t operate.TopicStatus) section {
	lines := wrap(headline(t), p.width)
	if t.Phase == shard.Migrating && t.Change != nil {
		lines = append(lines, wrap("  "+bar(t, min(40, p.width/4))+" "+progress(t, p.read), p.width)...)
	}
	for _, line := range paceLines(t) {
		lines = append(lines, wrap("  "+line, p.width)...)
	}
	if p.shards {
		for _, n := range t.Notes {
			lines = append(lines, wrap("! "+cli.OneLine(n), p.width)...)
		}
	}
	return fixed(lines)
}

// bar is how much of a change of M is done: of the tasks that have to move, or where none
// has to, of the shards that have to be looked at. What is left is an estimate, so that a
// change that is under way never shows as done.
func bar(t operate.TopicStatus, width int) string {
	done, all := float64(t.Change.Moved), float64(t.Change.Moved+t.Change.Misplaced)
	if all == 0 {
		done, all = float64(t.Change.Clean), float64(t.Attended)
	}
	part := 0.0
	if all > 0 {
		part = max(0, min(.99, done/all))
	}
	full := int(part * float64(width))
	return fmt.Sprintf("[%s%s] %d%%", strings.Repeat("#", full), strings.Repeat("-", max(0, width-full)), int(part*100))
}

// shardTable is the table of the chosen topic's shards, from the first that is shown.
func (p *page) shardTable(t operate.TopicStatus) section {
	return section{want: 1 + len(t.PerShard), draw: func(n int) []string {
		var out bytes.Buffer
		w := tabwriter.NewWriter(&out, 2, 0, 2, ' ', 0)
		fmt.Fprintln(w, columns)
		first := min(p.top, len(t.PerShard))
		for _, v := range t.PerShard[first:min(first+n-1, len(t.PerShard))] {
			row(w, strconv.Itoa(v.Shard), v, dueAge(v.Oldest, p.read))
		}
		_ = w.Flush() // into memory: no error
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}}
}

// cut makes a line fit, and says so by its last character.
func cut(line string, width int) string {
	if len(line) <= width {
		return line
	}
	letters := []rune(line)
	if len(letters) <= width {
		return line
	}
	if width < 1 {
		return ""
	}
	return string(letters[:width-1]) + cutMark
}

// wrap breaks a text at blanks into lines that fit; those behind the first are indented. A
// word that is too long for a line is left to cut.
func wrap(text string, width int) []string {
	const indent = "    "
	var lines []string
	line := ""
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width && strings.TrimSpace(line) != "":
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// short shows a count in six characters at most.
func short(n int64) string {
	v := float64(n)
	for _, unit := range []string{"", "k", "M", "G", "T"} {
		switch {
		case unit == "" && n < 100_000:
			return strconv.FormatInt(n, 10)
		case unit != "" && v < 999.5:
			return fmt.Sprintf("%.3g%s", v, unit)
		}
		v /= 1000
	}
	return "many"
}

// age shows how long ago something was, in six characters at most for a hundred years.
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

// dueAge is when something is due as seen from now, - for never.
func dueAge(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.After(now):
		return "in " + age(t.Sub(now))
	default:
		return age(now.Sub(t)) + " ago"
	}
}

// counted names a number of things.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
