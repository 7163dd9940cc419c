package main

import (
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/operate"
)

// page is what `scanner status --watch` shows, and how: what was read last, which topic is
// chosen, and how large the terminal is. It knows neither Redis nor the terminal: watch
// tells it what happened, and asks for its lines.
type page struct {
	every         time.Duration // between two readings
	width, height int           // of the terminal, in characters

	status operate.Status
	read   time.Time // when status was read; zero before the first reading
	asked  time.Time // when the reading under way began; zero if none is
	failed string    // why the newest reading failed; "" if it did not

	topic  string // the chosen one's name; "" is the first
	shards bool   // its shards are shown, in place of all topics
	top    int    // the first of them in the table
}

// reading is how one look at the fleet ended.
type reading struct {
	status operate.Status
	at     time.Time
	failed string // why there is no status; "" if there is one
}

// began notes that a reading is under way.
func (p *page) began(now time.Time) { p.asked = now }

// ended takes a reading. One that failed leaves what is shown as it was.
func (p *page) ended(r reading) {
	p.asked, p.failed = time.Time{}, r.failed
	if r.failed != "" {
		return
	}
	if len(p.status.Topics) > 0 {
		p.topic = p.status.Topics[p.chosen()].Topic // it stays the chosen one wherever it comes now
	}
	p.status, p.read = r.status, r.at
}

// resized takes the size of the terminal.
func (p *page) resized(width, height int) { p.width, p.height = width, height }

// chosen is the place of the chosen topic in the status: the first if it is gone, and if
// there is none.
func (p *page) chosen() int {
	named := func(t operate.TopicStatus) bool { return t.Topic == p.topic }
	return max(0, slices.IndexFunc(p.status.Topics, named))
}

// pressed takes a key and reports whether it ends the page. Keys are named by what is
// written on them; those that mean nothing here do nothing.
func (p *page) pressed(key string, now time.Time) (end bool) {
	switch key {
	case "q", "ctrl-c":
		return true
	case "up", "k":
		p.move(-1, now)
	case "down", "j":
		p.move(1, now)
	case "page up":
		p.move(-p.room(now), now)
	case "page down":
		p.move(p.room(now), now)
	case "enter", "s":
		p.shards, p.top = !p.shards && len(p.status.Topics) > 0, 0
	case "esc":
		p.shards = false
	}
	return false
}

// move goes by so many lines: through the topics, or the shards of one.
func (p *page) move(by int, now time.Time) {
	if len(p.status.Topics) == 0 {
		return
	}
	at := p.chosen()
	if p.shards {
		rows := len(p.status.Topics[at].PerShard)
		p.top = max(0, min(p.top+by, rows-p.room(now)))
		return
	}
	at = max(0, min(at+by, len(p.status.Topics)-1))
	p.topic = p.status.Topics[at].Topic
}
