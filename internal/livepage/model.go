// Package livepage shows a fleet's status: as text, and on a terminal that is kept up to
// date. Problems, TopicColumns, MemberColumns, InOrder, Share and Cells say what is shown,
// without a layout, so that it can be shown in another way.
package livepage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

// Problem is a reason why a fleet isn't healthy, on one line. Topics are the topics it is
// about; none if it is about the fleet.
type Problem struct {
	Topics []string
	Text   string
}

// Problems returns first the warnings about durability, then each reason once, with its
// topics. read is when the status was read.
func Problems(s operate.Status, read time.Time) (all []Problem) {
	for _, w := range s.Warnings {
		all = append(all, Problem{Text: warning(w)})
	}
	first := len(all)
	for _, r := range s.Reasons(read) {
		text := cli.OneLine(r.Text)
		at := slices.IndexFunc(all[first:], func(p Problem) bool { return p.Text == text })
		switch {
		case at < 0 && r.Topic == "":
			all = append(all, Problem{Text: text})
		case at < 0:
			all = append(all, Problem{Topics: []string{r.Topic}, Text: text})
		case all[first+at].Topics != nil:
			all[first+at].Topics = append(all[first+at].Topics, r.Topic)
		}
	}
	return all
}

// String returns the text, behind a prefix that names up to three topics and counts the
// others.
func (p Problem) String() string {
	const most = 3
	switch n := len(p.Topics); {
	case n == 0:
		return p.Text
	case n == 1:
		return "topic " + p.Topics[0] + ": " + p.Text
	case n > most:
		return fmt.Sprintf("topics %s and %d more: %s", strings.Join(p.Topics[:most], ", "), n-most, p.Text)
	default:
		return "topics " + strings.Join(p.Topics, ", ") + ": " + p.Text
	}
}

// warning renders a warning about durability as a line.
func warning(text string) string {
	return "redis is set to lose tasks that it acknowledged: " + cli.OneLine(text)
}

// Column is a column of a table with a row for each T.
type Column[T any] struct {
	Title string
	// Cell returns a row's text. read is when the status was read.
	Cell func(row T, read time.Time) string
	// Right is true for numbers, which are aligned to the right.
	Right bool

	least int // minimal width in characters, so that changing numbers don't move columns
	// drop is the order in which columns are left out if there is no room: the smallest
	// first. A column with 0 always stays.
	drop int
}

// TopicColumns returns the columns of the table of topics. Columns whose content is also
// in other lines of the page are left out first.
func TopicColumns() []Column[operate.TopicStatus] {
	type topic = operate.TopicStatus
	text := func(of func(t topic) string) func(topic, time.Time) string {
		return func(t topic, _ time.Time) string { return of(t) }
	}
	forwarded := func(of func(t topic) string) func(topic, time.Time) string {
		return func(t topic, _ time.Time) string {
			if t.PerSecond > 0 {
				return of(t)
			}
			return "-"
		}
	}
	return []Column[topic]{
		{Title: "TOPIC", Cell: text(func(t topic) string { return t.Topic })},
		{Title: "M", Cell: text(func(t topic) string { return fmt.Sprint(t.Shards) }), least: 4, Right: true},
		{Title: "STATE", Cell: text(stateOf), least: 9},
		{Title: "FWD/S", Cell: forwarded(func(t topic) string { return perSecond(t.PerSecond) }), least: 6, Right: true,
			drop: 4},
		{Title: "P50", Cell: forwarded(func(t topic) string { return lateness(t.Median) }), least: 6, Right: true, drop: 1},
		{Title: "P99", Cell: forwarded(func(t topic) string { return lateness(t.Worst) }), least: 6, Right: true, drop: 2},
		{Title: "STORED", Cell: text(func(t topic) string { return short(t.Pending) }), least: 6, Right: true},
		{Title: "BACKLOG", Cell: text(func(t topic) string { return short(t.Backlog) }), Right: true},
		{Title: "RETRY", Cell: text(func(t topic) string { return short(t.Retrying) }), least: 6, Right: true, drop: 3},
		{Title: "PARKED", Cell: text(func(t topic) string { return short(t.Parked) }), Right: true},
		{Title: "LATE", Cell: overdue, least: 6, Right: true},
		{Title: "NEXT DUE", Cell: nextDue, Right: true},
	}
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

// overdue returns how long the earliest task has been due, a dash if none is.
func overdue(t operate.TopicStatus, read time.Time) string {
	if t.Oldest.IsZero() || t.Oldest.After(read) {
		return "-"
	}
	return age(read.Sub(t.Oldest))
}

// nextDue returns when the next task is due, a dash if none is stored.
func nextDue(t operate.TopicStatus, read time.Time) string {
	switch {
	case t.Oldest.IsZero():
		return "-"
	case t.Oldest.After(read):
		return age(t.Oldest.Sub(read))
	}
	return "now"
}

// MemberColumns returns the columns of the table of a fleet's members.
func MemberColumns() []Column[balance.Member] {
	return []Column[balance.Member]{
		{Title: "INSTANCE", Cell: func(m balance.Member, _ time.Time) string { return m.Instance }},
		{Title: "STATE", Cell: func(m balance.Member, _ time.Time) string { return alive(m) }},
		{Title: "BEAT", Cell: func(m balance.Member, read time.Time) string { return age(read.Sub(m.Heartbeat)) }, least: 6,
			Right: true},
		{Title: "UP", Cell: up, least: 6, Right: true, drop: 2},
		{Title: "CONFIG", Cell: func(m balance.Member, _ time.Time) string { return configuration(m) }},
		{Title: "VERSION", Cell: func(m balance.Member, _ time.Time) string { return m.Version }, drop: 3},
		{Title: "ADMIN", Cell: func(m balance.Member, _ time.Time) string { return m.Admin }, drop: 1},
	}
}

// up returns how long a member has run, a dash if it hasn't reported it.
func up(m balance.Member, read time.Time) string {
	if m.Started.IsZero() {
		return "-"
	}
	return age(read.Sub(m.Started))
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

// InOrder sorts members: live ones first, by name; then dead ones, the latest heartbeat
// first.
func InOrder(fleet []balance.Member) []balance.Member {
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

// Share returns how much of a change of M is done. It is the share of moved tasks, or of
// clean shards if there are no tasks to move. It is at most 0.99, because the number of
// tasks left is an estimate.
func Share(t operate.TopicStatus) float64 {
	done, all := float64(t.Change.Moved), float64(t.Change.Moved+t.Change.Misplaced)
	if all == 0 {
		done, all = float64(t.Change.Clean), float64(t.Polled)
	}
	if all == 0 {
		return 0
	}
	return max(0, min(.99, done/all))
}

// The cells of the map of shards. The first that applies is shown, in this order. If none
// applies, the cell is a digit from 1 to 9: the shard's tasks in ninths of the tasks of
// the fullest shard.
const (
	unreadableCell = 'x' // the shard can't be read
	lateCell       = '!' // a task has been due for lateCellAfter
	dueCell        = '+' // a task has been due for dueCellAfter
	emptyCell      = '.' // nothing is stored
)

const (
	dueCellAfter  = time.Second
	lateCellAfter = time.Minute
)

// shardCount returns how many shards of a topic the map shows.
func shardCount(t operate.TopicStatus) int {
	count := t.Polled
	for _, v := range t.PerShard {
		count = max(count, v.Shard+1) // while a topic is being removed, none is polled
	}
	return count
}

// Cells returns the map of a topic's shards, a character for each group of shards. A
// group of several is shown as the worst and fullest of them.
func Cells(t operate.TopicStatus, group int, read time.Time) string {
	count := shardCount(t)
	groups := make([]shard.Stats, (count+group-1)/group)
	seen := make([]int, len(groups))
	for _, v := range t.PerShard {
		g := &groups[v.Shard/group]
		seen[v.Shard/group]++
		g.Pending = max(g.Pending, v.Pending)
		if !v.Oldest.IsZero() && (g.Oldest.IsZero() || v.Oldest.Before(g.Oldest)) {
			g.Oldest = v.Oldest
		}
	}
	fullest := int64(0)
	for _, g := range groups {
		fullest = max(fullest, g.Pending)
	}
	var out strings.Builder
	for i, g := range groups {
		readable := seen[i] == min(group, count-i*group)
		out.WriteByte(cell(g, readable, fullest, read))
	}
	return out.String()
}

// cell returns the cell for v, which describes a shard or the worst of several.
func cell(v shard.Stats, readable bool, fullest int64, read time.Time) byte {
	late := time.Duration(-1)
	if !v.Oldest.IsZero() {
		late = read.Sub(v.Oldest)
	}
	switch {
	case !readable:
		return unreadableCell
	case late >= lateCellAfter:
		return lateCell
	case late >= dueCellAfter:
		return dueCell
	case v.Pending == 0:
		return emptyCell
	default:
		return '1' + byte(min(8, (v.Pending*9-1)/max(1, fullest)))
	}
}
