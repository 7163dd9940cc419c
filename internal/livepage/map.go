package livepage

import (
	"fmt"

	"github.com/duefleet/duefleet/internal/operate"
)

const (
	labelWidth = 5  // the number of a row's first shard, and a blank
	cellStep   = 16 // the cells of a row are a multiple of this, if it fits
)

// shardMap shows all polled shards of a topic at once. A cell stands for one
// shard. If the terminal is too small for that, a cell stands for several shards, and shows
// the worst state and the largest count of them.
func (p *page) shardMap(t operate.TopicStatus) section {
	count, across := shardCount(t), cellsAcross(p.width)
	rows := (count + across - 1) / across
	return section{want: 1 + rows, draw: func(n int) []string {
		each := 1
		for (count+each-1)/each > across*max(1, n-1) {
			each *= 2
		}
		cells := Cells(t, each, p.read)
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
