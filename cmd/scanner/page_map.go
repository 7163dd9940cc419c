package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
)

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

const (
	labelWidth = 5  // the number of a row's first shard, and a blank
	cellStep   = 16 // the cells of a row are a multiple of this, if it fits
)

// shardMap shows all polled shards of a topic at once. A cell stands for one shard, or if
// there is no room for several: then it shows the worst and fullest of them.
func (p *page) shardMap(t operate.TopicStatus) section {
	count := t.Polled
	for _, v := range t.PerShard {
		count = max(count, v.Shard+1) // while a topic is being removed, none is polled
	}
	across := cellsAcross(p.width)
	rows := (count + across - 1) / across
	return section{want: 1 + rows, draw: func(n int) []string {
		each := 1
		for (count+each-1)/each > across*max(1, n-1) {
			each *= 2
		}
		cells := p.cells(t, count, each)
		title := "shards"
		if each > 1 {
			title = fmt.Sprintf("shards, %d a cell", each)
		}
		lines := []string{title + ": . empty, 1-9 how full, + due 1s, ! due 1m, x unreadable"}
		if n == 1 {
			lines = nil // the cells matter more than the title
		}
		for at := 0; at < len(cells); at += across {
			lines = append(lines, fmt.Sprintf("%*d %s", labelWidth-1, at*each, cells[at:min(at+across, len(cells))]))
		}
		return lines
	}}
}

// cellsAcross returns how many cells a row of the map has.
func cellsAcross(width int) int {
	across := width - labelWidth
	if across >= cellStep {
		across -= across % cellStep
	}
	return max(1, across)
}

// cells returns the cells of a topic's count shards in their order, with each shards in a
// cell.
func (p *page) cells(t operate.TopicStatus, count, each int) string {
	groups := make([]shard.Stats, (count+each-1)/each)
	seen := make([]int, len(groups))
	for _, v := range t.PerShard {
		g := &groups[v.Shard/each]
		seen[v.Shard/each]++
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
		readable := seen[i] == min(each, count-i*each)
		out.WriteByte(cell(g, readable, fullest, p.read))
	}
	return out.String()
}

// cell returns the cell for v, which describes a shard or the worst of several.
func cell(v shard.Stats, readable bool, fullest int64, now time.Time) byte {
	late := time.Duration(-1)
	if !v.Oldest.IsZero() {
		late = now.Sub(v.Oldest)
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
