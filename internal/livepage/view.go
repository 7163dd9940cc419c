package livepage

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// leastWidth and leastHeight are the smallest size at which each part of the page has
	// room.
	leastWidth, leastHeight = 60, 16
	// cutMark ends a line that is longer than the terminal is wide.
	cutMark = ">"
)

// section is a part of the page. It wants a number of lines; draw renders it in n lines,
// where n is at least 1 and at most want. If room is scarce, the section gets weight lines
// for each line of a section without a weight.
type section struct {
	want   int
	weight int
	draw   func(n int) []string
}

// lines renders the page at time now: one line for each line of the terminal, none longer
// than its width. They don't depend on colors.
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

// sections returns the parts of the page between head and foot.
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

// room returns how many lines a page down or page up scrolls: with shards shown, the rows
// of their table. It is at least 1.
func (p *page) room(now time.Time) int {
	parts := p.sections()
	if !p.shards || len(parts) == 0 {
		return max(1, p.height/2)
	}
	shares := divide(parts, max(0, p.height-len(p.head(now))-1))
	return max(1, shares[len(shares)-1]-1) // without the titles
}

// divide distributes lines among the parts. In turn it gives each part one line, or as
// many as its weight, until all have the lines they want or none are left.
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

// fixed returns a part with the given lines. If there is no room for all, its last line
// is the number of hidden lines.
func fixed(lines []string) section {
	return section{want: len(lines), draw: func(n int) []string {
		if n >= len(lines) {
			return lines
		}
		return append(slices.Clone(lines[:n-1]), fmt.Sprintf("  ... %d more", len(lines)-n+1))
	}}
}

// head returns when the shown status was read, and why there is no newer one.
func (p *page) head(now time.Time) (lines []string) {
	pace := fmt.Sprintf("every %s", p.every)
	if since := now.Sub(p.asked); !p.asked.IsZero() && since >= time.Second {
		pace = "reading for " + age(since)
	}
	if p.read.IsZero() {
		lines = []string{"duefleet: nothing read yet, " + pace}
	} else {
		lines = []string{fmt.Sprintf("duefleet: %s at %s (%s ago), %s; %d of %d scanners live",
			counted(len(p.status.Topics), "topic"), p.read.UTC().Format("15:04:05Z"), age(now.Sub(p.read)), pace,
			len(balance.Live(p.status.Fleet)), len(p.status.Fleet))}
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

// foot returns the keys, or that the terminal is too small.
func (p *page) foot() string {
	if p.width < leastWidth || p.height < leastHeight {
		return fmt.Sprintf("cut: %dx%d is small, %dx%d will do; q ends", p.width, p.height, leastWidth, leastHeight)
	}
	if p.shards {
		return "q ends | up, down, page up, page down: shards | enter: all topics"
	}
	return "q ends | up, down: choose a topic | enter: its shards"
}

// troubles lists the problems of the fleet.
func (p *page) troubles() section {
	var lines []string
	for _, problem := range Problems(p.status, p.read) {
		lines = append(lines, wrap("! "+problem.String(), p.width)...)
	}
	if len(lines) == 0 {
		lines = []string{"healthy"}
	}
	return fixed(lines)
}

// about describes the chosen topic: its placement, a change of M under way, its settings
// and its pace. Its notes are listed here if its shards are shown, else by troubles.
func (p *page) about(t operate.TopicStatus) section {
	lines := wrap(headline(t), p.width)
	if t.Phase == shard.Migrating && t.Change != nil {
		lines = append(lines, wrap("  "+bar(t, min(40, p.width/4))+" "+Progress(t, p.read), p.width)...)
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

// bar shows the progress of a change of M.
func bar(t operate.TopicStatus, width int) string {
	share := Share(t)
	full := int(share * float64(width))
	return fmt.Sprintf("[%s%s] %d%%", strings.Repeat("#", full), strings.Repeat("-", max(0, width-full)), int(share*100))
}

// shardTable returns the table of the chosen topic's shards, from index p.top on.
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

// cut shortens a line to width characters; a shortened line ends with cutMark.
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

// wrap breaks a text at blanks into lines of at most width characters. All but the first
// are indented. A longer word stays whole, for cut to shorten.
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

// short formats a count in at most six characters.
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

// age formats a duration, 0 if negative, in at most six characters up to a hundred years.
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

// dueAge formats a due time relative to now, a dash for the zero time.
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

// counted returns a number with a noun, in the plural unless n is 1.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
